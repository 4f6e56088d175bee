"""Objectives over batches of embeddings, one published objective per file.

>>> from tfdml import losses
>>> loss = losses.get("lifted", margin=0.5)
>>> loss = losses.LiftedStructuredLoss(margin=0.5)
"""

import importlib
import inspect
import types

from tfdml.checks import check, unknown_name, unknown_option

# What `--loss` and `get` take: name -> (module, class, options that the name stands for). Loaded
# on first use, so that the names can be listed without Keras.
LOSSES = {
    "binomial": ("binomial", "BinomialDevianceLoss", {}),
    "clustering": ("clustering", "ClusteringLoss", {}),
    "contrastive": ("contrastive", "ContrastiveLoss", {}),
    "coupled_clusters": ("coupled_clusters", "CoupledClustersLoss", {}),
    "density": ("density", "DensityAdaptiveLoss", {}),
    "hard_contrastive": (
        "hard_aware_cascade",
        "HardAwareCascadeLoss",
        {"levels": 1, "hard_ratios": (0.5,)},
    ),
    "hdc": ("hard_aware_cascade", "HardAwareCascadeLoss", {}),
    "histogram": ("histogram", "HistogramLoss", {}),
    "lifted": ("lifted", "LiftedStructuredLoss", {}),
    "lmdm": ("double_header", "DoubleHeaderHingeLoss", {"similarity": {"use_position": False}}),
    "npair": ("npair", "NPairLoss", {}),
    "pddm": ("double_header", "DoubleHeaderHingeLoss", {}),
    "pddm_triplet": ("double_header", "DoubleHeaderHingeLoss", {"headers": 1}),
    "quadruplet": (
        "double_header",
        "DoubleHeaderHingeLoss",
        {"similarity": None, "squared": False},
    ),
    "regularized": ("regularized", "RegularizedLoss", {}),
    "triplet": ("triplet", "TripletLoss", {}),
}
# The same for what stands beside a loss, in `RegularizedLoss`.
REGULARIZERS = {
    "density": ("density", "DensityRegularizer", {}),
    "entropy": ("entropy", "EntropyRegularizer", {}),
    "gor": ("global_orthogonal", "GlobalOrthogonalRegularizer", {}),
}

# Options of the papers, of the losses whose defaults are others: `get(name, preset="published")`.
_ONE_QUADRUPLET = {"alpha": 0.5, "beta": 1.0, "num_quadruplets": 1, "score_scale": "minmax"}
_OF_PDDM = {**_ONE_QUADRUPLET, "similarity": {"dropout": 0.5}}
PUBLISHED = {
    "lmdm": _OF_PDDM,
    "npair": {"pairs": "first", "scale": 1.0},
    "pddm": _OF_PDDM,
    "pddm_triplet": _OF_PDDM,
    "quadruplet": {**_ONE_QUADRUPLET, "squared": True},
}

_MODULES = {
    "MetricLoss": "base",
    **{name: module for module, name, _ in (*LOSSES.values(), *REGULARIZERS.values())},
}

__all__ = ["LOSSES", "PUBLISHED", "REGULARIZERS", "get", "get_regularizer", *_MODULES]


def get(name, /, *, preset=None, **options):
    """Builds a loss by its name in `LOSSES`.

    Args:
        name: A key of `LOSSES`, such as `"lifted"`.
        preset: `"published"` for the options of the paper, of the losses in `PUBLISHED`, whose
            defaults are others; None for the defaults.
        **options: Options of that loss; a dict adds to the dict that the name stands for.

    Returns:
        A `MetricLoss`.

    Raises:
        ValueError: If the name, an option or its value is unknown; says what exists.
    """
    published = {}
    if preset is not None:
        check(
            preset == "published" and name in PUBLISHED,
            "`preset` must be 'published', for one of the losses "
            f"{', '.join(PUBLISHED)}, whose defaults are not those of the paper",
            preset=preset,
            loss=name,
        )
        published = PUBLISHED[name]
    return _build("loss", LOSSES, name, options, published)


def get_regularizer(name, /, **options):
    """As `get`, of `REGULARIZERS`."""
    return _build("regularizer", REGULARIZERS, name, options)


def _build(kind, table, name, options, published=types.MappingProxyType({})):
    if not isinstance(name, str) or name not in table:
        raise ValueError(unknown_name(kind, name, table))
    _, class_name, preset = table[name]
    loss = __getattr__(class_name)
    parameters = inspect.signature(loss).parameters
    available = set(parameters) - {"name"}  # which `name` itself gives
    settings = {"name": name, **preset}
    for option, value in (*published.items(), *options.items()):
        if option not in available:
            raise ValueError(unknown_option(f"{kind} {name!r}", option, available))
        adds = isinstance(value, dict) and isinstance(settings.get(option), dict)
        settings[option] = {**settings[option], **value} if adds else value
    for option, parameter in parameters.items():
        if parameter.default is parameter.empty and option not in settings:
            raise ValueError(f"{kind} {name!r} needs the option {option!r}.")
    return loss(**settings)


def __getattr__(name):
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__():
    return sorted(__all__)
