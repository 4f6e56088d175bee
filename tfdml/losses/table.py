"""Table of the losses by name, readable without Keras."""

import ast
import importlib
import inspect
import itertools
import pathlib

from tfdml.checks import check, check_options, unknown_name

# Names of `--loss` and `get`: name -> (module of this package, class, options that the name
# implies).
LOSSES = {
    "arcface": ("arcface", "ArcFaceLoss", {}),
    "binomial": ("binomial", "BinomialDevianceLoss", {}),
    "circle": ("circle", "CircleLoss", {}),
    "clustering": ("clustering", "ClusteringLoss", {}),
    "contrastive": ("contrastive", "ContrastiveLoss", {}),
    "cosface": ("cosface", "CosFaceLoss", {}),
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
    "matryoshka": ("matryoshka", "MatryoshkaLoss", {}),
    "memory": ("memory", "CrossBatchMemoryLoss", {}),
    "multi_similarity": ("multi_similarity", "MultiSimilarityLoss", {}),
    "norm_softmax": ("norm_softmax", "NormalizedSoftmaxLoss", {}),
    "npair": ("npair", "NPairLoss", {}),
    "ntxent": ("ntxent", "NTXentLoss", {}),
    "pddm": ("double_header", "DoubleHeaderHingeLoss", {}),
    "pddm_triplet": ("double_header", "DoubleHeaderHingeLoss", {"headers": 1}),
    "proxy_anchor": ("proxy_anchor", "ProxyAnchorLoss", {}),
    "proxy_nca": ("proxy_nca", "ProxyNCALoss", {}),
    "quadruplet": (
        "double_header",
        "DoubleHeaderHingeLoss",
        {"similarity": None},
    ),
    "recall_at_k": ("recall_at_k", "RecallAtKLoss", {}),
    "regularized": ("regularized", "RegularizedLoss", {}),
    "roadmap": ("roadmap", "ROADMAPLoss", {}),
    "sampled_classes": ("sampled_classes", "SampledClassesLoss", {}),
    "sincere": ("sincere", "SINCERELoss", {}),
    "smooth_ap": ("smooth_ap", "SmoothAPLoss", {}),
    "soft_triple": ("soft_triple", "SoftTripleLoss", {}),
    "sub_center_arcface": ("arcface", "ArcFaceLoss", {"centers": 3}),
    "supcon": ("supcon", "SupConLoss", {}),
    "triplet": ("triplet", "TripletLoss", {}),
    "weighted_sum": ("weighted_sum", "WeightedSum", {}),
}
# The same for regularizers, for `RegularizedLoss`.
REGULARIZERS = {
    "density": ("density", "DensityRegularizer", {}),
    "entropy": ("entropy", "EntropyRegularizer", {}),
    "gor": ("global_orthogonal", "GlobalOrthogonalRegularizer", {}),
}

# Published options, for losses with different defaults: `get(name, preset="published")`.
_ONE_QUADRUPLET = {
    **{"alpha": 0.5, "beta": 1.0, "num_quadruplets": 1, "score_scale": "minmax"},
    **{"temperature": None, "embedding_mining": "similarity", "squared": True},
}
_OF_PDDM = {**_ONE_QUADRUPLET, "similarity": {"dropout": 0.5, "difference_bias": 0.0}}
PUBLISHED = {
    "binomial": {"negative_cost": 25.0},
    "circle": {"scale": 80.0},
    "clustering": {"gamma": 1.0},
    "density": {"base": {"name": "contrastive", "average_over": "batch"}, "weight": 10.0},
    "hard_contrastive": {"mine_positives": True},
    "hdc": {"mine_positives": True},
    "lifted": {"margin": 1.0},
    "lmdm": _OF_PDDM,
    "npair": {"pairs": "first", "scale": 1.0},
    "pddm": _OF_PDDM,
    "pddm_triplet": _OF_PDDM,
    "quadruplet": _ONE_QUADRUPLET,
}


def get(name, /, *, preset=None, **options):
    """Builds a loss by its name in `LOSSES`, or from a Keras config.

    Args:
        name: A key of `LOSSES`, such as `"lifted"`; or a dict of a name and options, `{"name":
            "lifted", "margin": 0.5}`; or a Keras config, `{"class_name": ..., "config": ...}`; or a
            loss, which is returned.
        preset: None for the defaults, or `"published"` for the options of the paper, for losses in
            `PUBLISHED`, whose defaults differ.
        **options: Options of that loss; a dict is merged into the dict that the name or the preset
            implies, unless it has a `"name"`.

    Returns:
        A `MetricLoss`.

    Raises:
        ValueError: If the name, an option or its value is unknown; the message lists the known.
    """
    if isinstance(name, dict) or hasattr(name, "get_config"):
        import keras

        check(
            not options and preset is None,
            "options go with the name of a loss, not with a loss or a config",
            options=sorted(options),
            preset=preset,
        )
        if isinstance(name, dict) and "class_name" not in name:
            from tfdml.losses._wrapped import built

            return built(get, loss=name)
        return keras.losses.get(name)
    return _build("loss", LOSSES, name, _options_of(preset, name), options)


def _options_of(preset, name):
    if preset is None:
        return {}
    expectation = f"`preset` must be None, or 'published' for one of {', '.join(PUBLISHED)}"
    check(preset == "published" and name in PUBLISHED, expectation, preset=preset, loss=name)
    return PUBLISHED[name]


def check_names_of_options(name, options):
    """Raises the errors of `get` for the names of options of a loss, without importing Keras."""
    options = {**options}
    _options_of(options.pop("preset", None), name)
    module, class_name, implied = LOSSES[name]
    source = pathlib.Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8")
    classes = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
    functions = [node for node in classes[class_name].body if isinstance(node, ast.FunctionDef)]
    [taken] = [function.args for function in functions if function.name == "__init__"]
    defaults = zip(taken.kwonlyargs, taken.kw_defaults, strict=True)
    required = {option.arg: True for option in taken.args[1:]}
    required |= {option.arg: default is None for option, default in defaults}
    _check_names(f"loss {name!r}", {**implied, **options}, required)


def get_regularizer(name, /, **options):
    """As `get`, for `REGULARIZERS`."""
    return _build("regularizer", REGULARIZERS, name, options)


def _build(kind, table, name, *given):
    if not isinstance(name, str) or name not in table:
        raise ValueError(unknown_name(kind, name, table))
    module, class_name, preset = table[name]
    loss = getattr(importlib.import_module(f"tfdml.losses.{module}"), class_name)
    settings = dict(preset)
    for option, value in itertools.chain.from_iterable(options.items() for options in given):
        adds = isinstance(value, dict) and isinstance(settings.get(option), dict)
        # A named part takes the place of another; the name of a similarity is that of its layer.
        adds = adds and ("name" not in value or option == "similarity")
        settings[option] = {**settings[option], **value} if adds else value
    parameters = inspect.signature(loss).parameters.values()
    required = {option.name: option.default is option.empty for option in parameters}
    _check_names(f"{kind} {name!r}", settings, required)
    return loss(name=name, **settings)


def _check_names(owner, given, required):
    """Checks the names of options against {name: whether the option must be given}."""
    check_options(owner, given, set(required) - {"name"})  # given by the owner's name itself
    for option, needed in required.items():
        if needed and option not in given:
            raise ValueError(f"{owner} requires the option {option!r}.")
