"""Batches of indices by tfdml."""

import numpy as np

from benchmarks.peers.workers.sampled import taken
from tfdml.quiet import import_tensorflow


def prepare(settings, folder):
    import_tensorflow()
    from pipelines import Balanced, Split, batches

    with np.load(folder / settings["inputs"]) as arrays:
        labels = arrays["labels"]
    classes, images = settings["classes_per_batch"], settings["images_per_class"]
    split, sampler = Split(inputs=np.arange(len(labels)), labels=labels), Balanced(classes, images)
    rows = batches(split, sampler).map(lambda rows, _: rows)
    return taken(lambda: iter(rows), settings["batches"])
