"""What tfdml writes for both sides before they are measured: weights, and decoded images."""

import dataclasses
import os
import sys

from benchmarks.peers.case import TFDML, worker
from benchmarks.peers.process import Worker
from tfdml.checks import check

SECONDS, GIGABYTES = 3600.0, 16.0  # to decode a data set
DIM = 128  # of an embedding
WEIGHTS = "weights/mobilenetv2_1.0_224_no_top.weights.h5"  # of ImageNet, in the data folder


def initial_weights(folder, network, shape, seed=0, pretrained=None):
    """Name of the file of the weights of a new network.

    Args:
        folder: `pathlib.Path`.
        network: Name of a backbone of tfdml.
        shape: (height, width, channels) of the images.
        seed: Of what is random.
        pretrained: Name of a file of pretrained weights in the folder; None for random weights.
    """
    start = "random" if pretrained is None else "pretrained"
    name = f"weights_{network}_{shape[0]}_{shape[2]}_{DIM}_{start}_{seed}.npz"
    settings = {"network": network, "shape": list(shape), "dim": DIM, "seed": seed}
    return written_by("networks", {**settings, "pretrained": pretrained}, folder, name)


def race_images(folder, race, data):
    """Name of the file of the images of a race.

    Args:
        folder: `pathlib.Path`.
        race: `Race`.
        data: `pathlib.Path` of the data folder.
    """
    settings = {**dataclasses.asdict(race), "data_dir": str(data / race.folder)}
    return written_by("photos", settings, folder, f"race_{race.folder}_{race.stored}.npz")


def pretrained_weights(folder, data):
    """Name of a link in the folder to the weights in the data folder."""
    link = folder / os.path.basename(WEIGHTS)
    link.unlink(missing_ok=True)  # of another data folder
    link.symlink_to((data / WEIGHTS).resolve())
    return link.name


def check_data(races, data):
    """Raises a ValueError unless the data folder has the data sets and weights of races."""
    expectation = "the race needs --data_dir, the folder of the data, or TFDML_DATA"
    check(data is not None, expectation, data_dir=data)
    needed = [race.folder for race in races]
    needed += [WEIGHTS] if any(race.pretrained for race in races) else []
    missing = [str(data / name) for name in needed if not (data / name).exists()]
    check(not missing, "the race needs images and weights in --data_dir", missing=missing)


def written_by(what, settings, folder, name):
    """Name of the file of what a worker of tfdml returns, written if it is missing."""
    if not (folder / name).exists():
        settings = {**settings, "threads": os.cpu_count(), "outputs": f"unfinished_{name}"}
        module = worker(TFDML, what)
        with Worker(what, sys.executable, module, settings, folder, GIGABYTES) as process:
            process.started()
            process.ask("once", SECONDS)
        (folder / settings["outputs"]).rename(folder / name)
    return name
