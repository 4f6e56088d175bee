"""Images in, class-balanced batches out.

>>> import pipelines
>>> digits = pipelines.load("digits")
>>> batches = pipelines.balanced_batches(digits.train, classes_per_batch=4, images_per_class=2)
>>> images, labels = next(iter(batches))
>>> images.shape, labels.shape
(TensorShape([8, 8, 8, 1]), TensorShape([8]))
"""

import importlib

from pipelines.augmentation import Augmentation
from pipelines.datasets import entry_of, is_listed, load, names
from pipelines.preprocessing import Preprocessing

_MODULES = {
    "Dataset": "split",
    "HardNeighbours": "hard_neighbours",
    "Split": "split",
    "balanced_batches": "batches",
    "draw_gallery": "split",
    "evaluation_batches": "batches",
    "group_batches": "batches",
    "hold_out_classes": "split",
    "join_splits": "split",
    "pair_batches": "batches",
    "read_mean_image": "mean_image",
    "rows_to_find": "split",
    "whole_class_batches": "batches",
}

__all__ = ["Augmentation", "Preprocessing", "entry_of", "is_listed", "load", "names", *_MODULES]


def __getattr__(name):
    # Loaded on first use, so that listing the datasets does not load TensorFlow.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__():
    return sorted(__all__)
