"""Batches of indices by open-metric-learning."""

import numpy as np

from benchmarks.peers.workers import torchvision_import  # noqa: F401, before open-metric-learning
from benchmarks.peers.workers.sampled import epoch_after_epoch, taken


def prepare(settings, folder):
    from oml.samplers import BalanceSampler

    with np.load(folder / settings["inputs"]) as arrays:
        labels = arrays["labels"]
    classes, images = settings["classes_per_batch"], settings["images_per_class"]
    return taken(
        lambda: epoch_after_epoch(BalanceSampler(labels, classes, images)), settings["batches"]
    )
