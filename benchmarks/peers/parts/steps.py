"""One training step of the same network with the same weights, on all cores."""

import importlib.util
import os

import numpy as np

from benchmarks.peers.arrays import written
from benchmarks.peers.case import BACKENDS, TFDML, Case, worker
from benchmarks.peers.measured_tables import comparison
from benchmarks.peers.prepared import initial_weights

PART = "steps"
SHAPE = {"classes_per_batch": 16, "images_per_class": 4}
NETWORKS = {"small_cnn": 28, "mobilenet_v2": 128, "googlenet": 128}  # pixels
PRECISIONS = ("float32", "bfloat16")
LAYOUTS = {"PyTorch, channels first": False, "PyTorch, channels last": True}


def cases(arguments, _):
    for network, pixels in NETWORKS.items():
        for precision in PRECISIONS:
            yield case_of(network, pixels, precision, arguments)


def case_of(network, pixels, precision, arguments):
    folder = arguments.folder
    settings = {
        "threads": os.cpu_count(),
        "inputs": written(folder, f"steps_{pixels}", lambda: arrays(pixels)),
        "weights": initial_weights(folder, network, (pixels, pixels, 3)),
        "network": network,
        "precision": precision,
        "pixels": pixels,
        **SHAPE,
    }
    sides = {TFDML: (worker(TFDML, PART), {})}
    there = [backend for backend in BACKENDS if importlib.util.find_spec(backend)]
    sides |= {backend: (worker(TFDML, PART), {"backend": backend}) for backend in there}
    sides |= {
        side: (worker("torch", PART), {"channels_last": last}) for side, last in LAYOUTS.items()
    }
    # The first steps of PyTorch take up to twice as long as later ones: the median is of many.
    return Case(f"{PART}/{network}/{precision}", sides, settings, 4 * arguments.rounds)


def arrays(pixels):
    """A batch of noise."""
    classes, images = SHAPE.values()
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (classes * images, pixels, pixels, 3), np.uint8)
    return {"images": noise, "labels": np.repeat(np.arange(classes), images)}


def page(records):
    chosen = {}
    for key, record in records.items():
        _, network, precision = key.split("/")
        pixels = record["case"]["settings"]["pixels"]
        chosen[f"{network}, {pixels} px, {precision}"] = record
    return [
        "## Training steps",
        "",
        "Forward, multi-similarity loss, backward and Adam on 64 images of noise. Both sides start",
        "with the same weights: the loss of the first step shows that it is the same network.",
        "MobileNetV2 is that of torchvision with Keras' paddings; GoogLeNet that of BVLC, as in",
        "tfdml, written in PyTorch, as torchvision's has batch normalisation. bfloat16 is a mixed",
        "policy in tfdml, autocast in PyTorch. tfdml trains on TensorFlow, and where they are",
        "installed on the other backends of Keras.",
        "",
        comparison("network", chosen, "ms", lambda of: {"the first loss": of["loss"]["relative"]}),
    ]
