"""Objectives over batches of embeddings, one published objective per file.

>>> from tfdml import losses
>>> loss = losses.get("lifted", margin=0.5)
>>> loss = losses.LiftedStructuredLoss(margin=0.5)
"""

import importlib
import inspect

from tfdml.checks import unknown_name, unknown_option

# What `--loss` and `get` take: name -> (module, class, options that the name stands for). Loaded
# on first use, so that the names can be listed without Keras.
LOSSES = {
    "contrastive": ("contrastive", "ContrastiveLoss", {}),
    "hard_contrastive": (
        "hard_aware_cascade",
        "HardAwareCascadeLoss",
        {"levels": 1, "hard_ratios": (0.5,)},
    ),
    "hdc": ("hard_aware_cascade", "HardAwareCascadeLoss", {}),
    "lifted": ("lifted", "LiftedStructuredLoss", {}),
    "lmdm": ("double_header", "DoubleHeaderHingeLoss", {"similarity": {"use_position": False}}),
    "npair": ("npair", "NPairLoss", {}),
    "pddm": ("double_header", "DoubleHeaderHingeLoss", {}),
    "pddm_triplet": ("double_header", "DoubleHeaderHingeLoss", {"headers": 1}),
    "quadruplet": ("double_header", "DoubleHeaderHingeLoss", {"similarity": None}),
    "triplet": ("triplet", "TripletLoss", {}),
}

_MODULES = {"MetricLoss": "base", **{name: module for module, name, _ in LOSSES.values()}}

__all__ = ["LOSSES", "get", *_MODULES]


def get(name, /, **options):
    """Builds a loss by its name in `LOSSES`.

    Args:
        name: A key of `LOSSES`, such as `"lifted"`.
        **options: Options of that loss; a dict adds to the dict that the name stands for.

    Returns:
        A `MetricLoss`.

    Raises:
        ValueError: If the name, an option or its value is unknown; says what exists.
    """
    if name not in LOSSES:
        raise ValueError(unknown_name("loss", name, LOSSES))
    _, class_name, preset = LOSSES[name]
    loss = __getattr__(class_name)
    available = set(inspect.signature(loss).parameters) - {"name"}  # which `name` itself gives
    settings = {"name": name, **preset}
    for option, value in options.items():
        if option not in available:
            raise ValueError(unknown_option(f"loss {name!r}", option, available))
        adds = isinstance(value, dict) and isinstance(preset.get(option), dict)
        settings[option] = {**preset[option], **value} if adds else value
    return loss(**settings)


def __getattr__(name):
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__():
    return sorted(__all__)
