"""The weights that both sides start from, written by tfdml."""

import sys

from benchmarks.peers.case import TFDML, worker
from benchmarks.peers.process import START, Worker

GIGABYTES = 8.0


def initial_weights(folder, network, shape, dim=128, seed=0, weights=None):
    """Name of the file of the weights of a new network, written if it is missing.

    Args:
        folder: `pathlib.Path`.
        network: Name of a backbone of tfdml.
        shape: (height, width, channels) of the images.
        dim: Width of the embedding.
        seed: Of what is random.
        weights: Path of a file of pretrained weights; None for random weights.
    """
    start = "random" if weights is None else "pretrained"
    name = f"weights_{network}_{shape[0]}_{shape[2]}_{dim}_{start}_{seed}.npz"
    if not (folder / name).exists():
        settings = {"network": network, "shape": list(shape), "dim": dim, "seed": seed}
        settings |= {"weights": weights and str(weights), "threads": 2}
        settings["outputs"] = f"unfinished_{name}"
        module = worker(TFDML, "networks")
        with Worker("weights", sys.executable, module, settings, folder, GIGABYTES) as process:
            process.started()
            process.ask("once", START)
        (folder / settings["outputs"]).rename(folder / name)
    return name
