"""Batches of indices by tfdml."""

import numpy as np

from benchmarks.peers.workers.sampled import of_batches
from tfdml.quiet import import_tensorflow


def prepare(settings, folder):
    import_tensorflow()
    from pipelines.sampling import balanced_indices

    with np.load(folder / settings["inputs"]) as arrays:
        labels = arrays["labels"]
    classes, images = settings["classes_per_batch"], settings["images_per_class"]
    return of_batches(lambda: iter(balanced_indices(labels, classes, images)), settings["batches"])
