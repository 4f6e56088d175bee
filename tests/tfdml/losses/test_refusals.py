"""What losses reject, and what they say of it."""

import inspect
import re

import keras
import numpy as np
import pytest

from tfdml import losses

LABELS, ROWS = np.array([0, 0, 1, 1]), np.zeros((4, 2), "float32")
SWAPPED = r"`labels`.*Received: dtype=float32.*swapped"
NAMES = re.escape("names by np.unique(labels, return_inverse=True)[1]. Received: dtype=")
ONE_HOT = re.escape("convert one-hot rows by np.argmax(labels, axis=1). Received: ")


@pytest.mark.parametrize(
    ("labels", "embeddings", "error", "message"),
    [
        (ROWS, LABELS, TypeError, SWAPPED),
        (ROWS, list(LABELS), TypeError, SWAPPED),
        (ROWS[:, 0], ROWS, TypeError, r"`labels`.*Received: dtype=float32$"),
        (None, ROWS, TypeError, r"`labels`.*Received: dtype=object$"),
        (np.array(["a", "a", "b", "b"]), ROWS, TypeError, NAMES),
        (np.array(["a", "a", "b", "b"], object), ROWS, TypeError, NAMES),
        (np.eye(4, dtype="float32"), ROWS, TypeError, ONE_HOT),
        (np.eye(4, dtype="int64"), ROWS, ValueError, ONE_HOT),
        (LABELS, None, TypeError, r"`embeddings`.*Received: dtype=object$"),
        (LABELS, LABELS[:, None], TypeError, "`embeddings`.*Received: dtype=int"),
        (LABELS[:3], ROWS, ValueError, r"batch size.*Received: labels.shape=\(3,\)"),
        (LABELS.reshape(2, 2), ROWS, ValueError, r"`labels`.*Received: labels.shape=\(2, 2\)"),
        (LABELS, ROWS.reshape(-1), ValueError, r"`embeddings`.*Received: .*\(8,\)"),
        (LABELS[:0], ROWS[:0], ValueError, r"batch.*Received: .*\(0, 2\)"),
    ],
)
def test_rejects_wrong_input(labels, embeddings, error, message):
    tensors = [labels, embeddings]
    for place, given in enumerate(tensors):
        if isinstance(given, np.ndarray) and given.dtype.kind in "if":
            tensors[place] = keras.ops.convert_to_tensor(given)
    for arguments in ((labels, embeddings), tensors):
        with pytest.raises(error, match=message):
            losses.get("contrastive")(*arguments)


INFINITE = float("inf")
NO_DENSITIES = [0.1, -1], [0.1, "x"], 3.0, [[0.1]], [], [0.1, float("nan")], "ab", {0: 1}
WRONG = {  # name -> options that it rejects, the first of each by its value
    "binomial": [{"negative_cost": 0}, {"beta": INFINITE}],
    "clustering": [{"gamma": 0}, {"swaps": -1}],
    "contrastive": [
        *({"margin": value} for value in (-1.0, "1", None, True, [1.0])),
        *({"average_over": "triplets"}, {"pairs": "first"}),
        {"squared_hinge": True, "squared": False},
    ],
    "coupled_clusters": [{"margin": 0}],
    "density": [
        *({"alpha_init": INFINITE}, {"alpha_multiplier": -1}, {"eta": 1.5}, {"num_classes": 0}),
        *({"initial_density": value} for value in NO_DENSITIES),
    ],
    "hdc": [
        *({"levels": 0}, {"hard_ratios": (1.0, 0.5, 0.2), "levels": 2}, {"selection": "own"}),
        *({"hard_ratios": (1, 0.5, 0)}, {"hard_ratios": (1.5, 1, 0.5)}),
    ],
    "histogram": [{"num_bins": 1}],
    "lifted": [{"margin": INFINITE}, {"variant": "soft"}],
    "matryoshka": [{"dims": (), "base": "triplet"}, {"dims": (8, 8), "base": "triplet"}],
    "multi_similarity": [{"threshold": 1.1}, {"threshold": -1.1}, {"epsilon": -1}],
    "npair": [{"l2": -0.1, "normalize": False}, {"l2": 0.1}],
    "pddm": [
        *({"num_quadruplets": True}, {"num_quadruplets": 2}, {"headers": 1.0}, {"headers": 3}),
        *({"alpha": 0.0}, {"score_scale": "max"}, {"similarity": "cosine"}, {"squared": 1}),
    ],
    "quadruplet": [{"embedding_weight": 0}],
    "recall_at_k": [
        *({"k": 4}, {"k": (True, 2)}, {"k": (0, 1)}, {"mix": 1}, {"mix": True}, {"mix": 2.5})
    ],
    "regularized": [
        *({"base": base, "regularizer": "gor"} for base in ({"margin": 1.0}, {"name": ["a"]})),
        *({"base": {1: 2, "name": "triplet"}, "regularizer": "gor"},),
        {"weight": 0, "base": "triplet", "regularizer": "gor"},
    ],
    "triplet": [{"margin": float("nan")}, {"mining": "easy"}],
    "weighted_sum": [{"parts": {}}, {"parts": ["triplet"]}],
}


@pytest.mark.parametrize(
    ("name", "options"), [(name, each) for name, options in WRONG.items() for each in options]
)
def test_rejects_wrong_options(name, options):
    (argument, value), *_ = options.items()
    message = f"{re.escape(f'`{argument}`')}.*Received: .*{re.escape(f'{argument}={value!r}')}"
    with pytest.raises((TypeError, ValueError), match=message):
        losses.get(name, **options)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("pddm", {"similarity": {"dropuot": 0}}, ["'dropuot'", "'dropout'", "Available"]),
        ("pddm", {"similarity": {1: 2}}, ["similarity", "option 1", "Available"]),
        ("regularized", {"base": "triplet"}, ["'regularized'", "'regularizer'"]),
        ("regularized", {"base": "tripelt", "regularizer": "gor"}, ["'tripelt'", "'triplet'"]),
        ("regularized", {"base": "triplet", "regularizer": "go"}, ["'go'", "'gor'"]),
        (
            "regularized",
            {"base": "triplet", "regularizer": {"name": "gor", "wieght": 1}},
            ["'gor'", "'wieght'", "Available: normalize"],
        ),
        ("triplet", {"magrin": 1}, ["'triplet'", "'magrin'", "'margin'"]),
        ("lifted", {"name": 3}, ["'lifted'", "'name'", "Available: margin, normalize, variant"]),
        ("liftd", {}, ["'liftd'", "'lifted'", "Available: arcface, "]),
        ("density", {"initial_density": [0.1], "num_classes": 2}, ["one number per", "length=1"]),
        ("hdc", {"level_weights": [1, 1, -1]}, ["`level_weights[2]` must be >= 0"]),
        (
            "hdc",
            {"selection": "cascade", "average_over": "ordered"},
            ["`average_over='ordered'` requires", "selection='cascade'"],
        ),
        ("weighted_sum", {"parts": {"triplet": 0}}, ["`parts['triplet']` must be > 0"]),
        ("weighted_sum", {"parts": {"triplet": (1, "npair", 2)}}, ["must be a weight, or a pair"]),
        ("weighted_sum", {"parts": {"triplet": "npair"}}, ["`parts['triplet']` must be a number"]),
        ("weighted_sum", {"parts": {"tripelt": 1.0}}, ["Did you mean 'triplet'"]),
        ("weighted_sum", {"parts": {"triplet": {"margn": 1}}}, ["Did you mean 'margin'"]),
        ("weighted_sum", {"parts": {"triplet": 1.0, "hdc": 1.0}}, ["same levels", "[1, 3]"]),
        ("sampled_classes", {"base": "proxy_anchor"}, ["`base` must have a softmax over proxies"]),
        ("sampled_classes", {"base": "cosface", "rate": 1.5}, ["<= 1. Received: rate=1.5"]),
        ("guarded", {"base": "triplet"}, ["one of max_similarity, margin", "margin=None"]),
        ("guarded", {"base": "hdc", "margin": 0}, ["`base` must be an objective over pairs"]),
        ("guarded", {"base": "arcface", "margin": 0}, ["`base` must be an objective over pairs"]),
        ("guarded", {"base": {"name": "recall_at_k", "mix": 4}, "margin": 0}, ["or mix rows"]),
        ("guarded", {"base": {"name": "npair", "pairs": "first"}, "margin": 0}, ["may choose"]),
        ("guarded", {"base": "triplet", "margin": "x"}, ["`margin` must be a number"]),
        ("guarded", {"base": "triplet", "margin": 5}, ["`margin` must be from -2 to 2"]),
        ("memory", {"base": "clustering", "size": 8}, ["`base` must be an objective over pairs"]),
        (
            "memory",
            {"base": {"name": "npair", "pairs": "first"}, "size": 8},
            ["no option may choose pairs within a batch"],
        ),
    ],
)
def test_says_what_is_wrong(name, options, said):
    with pytest.raises((TypeError, ValueError), match=".*".join(map(re.escape, said))):
        losses.get(name, **options)


def test_rejects_a_width_that_does_not_divide_into_levels():
    with pytest.raises(ValueError, match=r"`embeddings`.*Received: .*\(4, 5\), levels=3"):
        losses.get("hdc")(np.array([0, 0, 1, 1]), np.zeros((4, 5), "float32"))


def test_rejects_a_normalize_that_is_no_bool():
    for name, class_name in losses.LOSSES.items():
        if "normalize" not in inspect.signature(getattr(losses, class_name)).parameters:
            continue
        with pytest.raises(TypeError, match=r"`normalize`.*Received: normalize='yes'"):
            losses.get(name, normalize="yes")
