"""Objectives over batches of embeddings, one published objective per file.

>>> from tfdml import losses
>>> loss = losses.get("lifted", margin=0.5)
>>> loss = losses.LiftedStructuredLoss(margin=0.5)
"""

import importlib
import inspect

from tfdml.checks import unknown_name, unknown_option

# What `--loss` and `get` take: name -> (module, class). Loaded on first use, so that the names
# can be listed without Keras.
LOSSES = {
    "contrastive": ("contrastive", "ContrastiveLoss"),
    "lifted": ("lifted", "LiftedStructuredLoss"),
    "npair": ("npair", "NPairLoss"),
    "triplet": ("triplet", "TripletLoss"),
}

_MODULES = {"MetricLoss": "base", **{name: module for module, name in LOSSES.values()}}

__all__ = ["LOSSES", "get", *_MODULES]


def get(name, **options):
    """Builds a loss by its name in `LOSSES`.

    Args:
        name: A key of `LOSSES`, such as `"lifted"`.
        **options: Options of that loss.

    Returns:
        A `MetricLoss`.

    Raises:
        ValueError: If the name, an option or its value is unknown; says what exists.
    """
    if name not in LOSSES:
        raise ValueError(unknown_name("loss", name, LOSSES))
    loss = __getattr__(LOSSES[name][1])
    available = inspect.signature(loss).parameters
    for option in options:
        if option not in available:
            raise ValueError(unknown_option(f"loss {name!r}", option, available))
    return loss(**options)


def __getattr__(name):
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
