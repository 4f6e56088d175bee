"""What every loss of the table promises (its docstring, `MetricLoss`), for every loss and option.

Value, gradient, order of the batch and config are tested on every case; what depends on the
operations rather than on the numbers on one case for each code path; what `base.py` decides on
a few. The other cases are `slow`.

Runs on the TensorFlow, JAX and PyTorch backends of Keras.
"""

import functools
import inspect
import itertools
import json
import pathlib
import re

import keras
import numpy as np
import oracles
import pytest
from backend import (
    DOUBLE,
    PRECISIONS,
    REPEATED,
    compiled_gradient,
    differentiable,
    float32_forms,
    of_case,
    slow_on_jax,
    value_and_gradient,
)

from tfdml import losses

BACKEND = keras.backend.backend()
# A similarity with the same first weights each time, for the losses that learn one.
LEARNED = {
    "similarity": {
        "units": 8,
        "seed": 3,
        "dropout": 0.0,
        "difference_bias": 0.5,
        "dtype": "float64",
    }
}
ONE_QUADRUPLET = {
    **{"num_quadruplets": 1, "score_scale": "minmax", "alpha": 0.5, "beta": 1.0},
    **{"temperature": None, "embedding_mining": "similarity", "squared": True},
}
FIRST, DISJOINT = ({"pairs": pairs, "scale": 1.0} for pairs in ("first", "disjoint"))
DENSITIES = [0.1 + 0.05 * label for label in range(12)]
INITIALIZER = {"class_name": "RandomNormal", "config": {"stddev": 1.0, "seed": 3}}
PROXIES = {"num_classes": 12, "initializer": INITIALIZER}  # the same each time
CASES = [
    ("arcface", PROXIES),
    ("arcface", {**PROXIES, "scale": 5.0, "margin": 1.0, "proxy_multiplier": 3.0}),
    ("arcface", {**PROXIES, "scale": 5.0, "straight_through": True}),
    ("cosface", PROXIES),
    ("cosface", {**PROXIES, "scale": 4.0, "margin": 0.1, "centers": 2, "proxy_multiplier": 2.0}),
    ("norm_softmax", PROXIES),
    ("norm_softmax", {**PROXIES, "scale": 3.0, "proxy_multiplier": 2.0}),
    ("proxy_anchor", PROXIES),
    ("proxy_anchor", {**PROXIES, "scale": 3.0, "margin": 0.3, "proxy_multiplier": 2.0}),
    ("proxy_nca", PROXIES),
    ("proxy_nca", {**PROXIES, "scale": 2.0, "variant": "classic", "proxy_multiplier": 2.0}),
    (
        "soft_triple",
        {**PROXIES, "scale": 4.0, "gamma": 0.5, "margin": 0.1, "weight": 0.7, "centers": 3},
    ),
    ("soft_triple", {**PROXIES, "centers": 1, "proxy_multiplier": 2.0}),
    ("sub_center_arcface", PROXIES),
    ("sub_center_arcface", {**PROXIES, "centers": 2}),
    ("binomial", {}),
    ("binomial", {"alpha": 1.5, "beta": 0.1, "negative_cost": 3.0, "normalize": False}),
    ("circle", {}),
    ("circle", {"margin": 0.25, "scale": 3.0}),
    ("clustering", {}),
    ("clustering", {"gamma": 4.0, "squared": True}),
    # With a margin in the scale of raw rows: a small one is kept long before neighbours are right.
    ("clustering", {"gamma": 10.0, "swaps": 1, "normalize": False}),
    ("contrastive", {}),
    ("contrastive", {"margin": 0.5, "squared": False, "average_over": "pairs"}),
    ("contrastive", {"average_over": "batch", "normalize": False}),
    ("contrastive", {"average_over": "sum", "margin": 2.0}),
    ("contrastive", {"squared_hinge": True, "margin": 1.5}),
    ("contrastive", {"pairs": "halves", "squared_hinge": True, "margin": 5.0, "normalize": False}),
    ("coupled_clusters", {}),
    ("coupled_clusters", {"margin": 1.0}),
    ("coupled_clusters", {"normalize": True}),
    ("density", {"initial_density": DENSITIES, "weight": 0.5}),
    (
        "density",
        {
            "base": {"name": "triplet", "margin": 0.5},
            "num_classes": 12,
            "weight": 0.5,
            "correlation": False,
            "alpha_init": 0.75,
            "alpha_multiplier": 3.0,
        },
    ),
    (
        "density",
        {"base": {"name": "npair", **DISJOINT}, "initial_density": DENSITIES, "eta": 1.0},
    ),
    ("histogram", {}),
    ("histogram", {"num_bins": 33, "normalize": False}),
    ("regularized", {"base": "contrastive", "regularizer": "gor"}),
    (
        "regularized",
        {
            "base": "lifted",
            "regularizer": {
                "name": "entropy",
                "of": "parzen",
                "bandwidth": 0.7,
                "normalize": False,
            },
            "weight": 0.3,
        },
    ),
    (
        "regularized",
        {"base": "hdc", "regularizer": {"name": "entropy", "threshold": 1.5}},
    ),
    ("triplet", {}),
    ("triplet", {"margin": 0.2, "average_over": "active"}),
    ("triplet", {"average_over": "batch", "squared": False, "normalize": False}),
    ("triplet", {"average_over": "sum"}),
    ("triplet", {"mining": "semihard"}),
    ("triplet", {"mining": "semihard", "margin": 0.3, "squared": False, "average_over": "active"}),
    ("triplet", {"mining": "hard"}),
    ("triplet", {"mining": "hard", "margin": 0.2, "squared": False, "average_over": "batch"}),
    ("triplet", {"mining": "hard", "margin": 0.05, "average_over": "active"}),
    ("lifted", {}),
    ("lifted", {"margin": 2.0, "normalize": True}),
    ("lifted", {"variant": "max"}),
    ("lifted", {"variant": "sum", "margin": 2.0}),
    ("matryoshka", {"base": "triplet", "dims": (6, 3)}),
    ("matryoshka", {"base": "lifted", "dims": (2, 6), "weights": (0.5, 2.0)}),
    ("memory", {"base": "contrastive", "size": 30}),
    ("memory", {"base": "multi_similarity", "size": 30, "start_step": 0, "weight": 0.5}),
    ("multi_similarity", {}),
    ("multi_similarity", {"epsilon": None, "threshold": 0.2, "alpha": 1.0, "beta": 5.0}),
    ("multi_similarity", {"beta": 3.0, "epsilon": 0.5, "normalize": False}),
    ("ntxent", {}),
    ("ntxent", {"temperature": 0.5, "margin": 0.3, "normalize": False}),
    ("recall_at_k", {"rank_temperature": 0.1}),
    ("recall_at_k", {"k": (1, 3), "rank_temperature": 0.2, "count_temperature": 0.5}),
    ("recall_at_k", {"rank_temperature": 0.3, "rank_self": True, "normalize": False}),
    ("recall_at_k", {"rank_temperature": 0.1, "mix": 4, "seed": 1}),
    ("roadmap", {"temperature": 0.1}),
    (
        "roadmap",
        {
            "temperature": 0.2,
            "slope": 3.0,
            "margin": 0.3,
            "offset": 1.2,
            "calibration": 0.5,
            "positive_target": 0.7,
            "negative_target": 0.1,
        },
    ),
    ("roadmap", {"temperature": 0.3, "rank_self": True, "calibration": 0.0, "normalize": False}),
    ("sampled_classes", {"base": {"name": "cosface", **PROXIES}, "rate": 0.5, "seed": 1}),
    ("sincere", {}),
    ("sincere", {"temperature": 0.5, "margin": 0.3, "normalize": False}),
    ("smooth_ap", {"temperature": 0.1}),
    ("smooth_ap", {"temperature": 0.3, "rank_self": True, "normalize": False}),
    ("supcon", {}),
    ("supcon", {"temperature": 0.5, "margin": 0.3, "normalize": False}),
    ("npair", {}),
    ("npair", FIRST),
    ("npair", DISJOINT),
    ("npair", {"scale": 1.0}),
    ("npair", {"scale": 1.0, "normalize": False, "l2": 0.01}),
    ("hdc", {}),
    # A margin that no pair reaches: what a later level makes of tied pairs hangs on their order.
    ("hdc", {"selection": "cascade", "hard_ratios": (0.8, 0.6, 0.3), "margin": 5.0}),
    ("hdc", {"average_over": "pairs"}),
    ("hdc", {"selection": "previous", "squared": False, "average_over": "sum", "margin": 1.5}),
    ("hdc", {"average_over": "ordered", "negative_factor": 10.0, "mine_positives": True}),
    ("hdc", {"mine_positives": True, "level_weights": (1.0, 0.0, 2.5), "normalize": False}),
    ("hdc", {"mine_positives": True}),
    (
        "hdc",
        {
            "levels": 2,
            "hard_ratios": (0.7, 0.29),
            "selection": "previous",
            "mine_positives": True,
        },
    ),
    ("hard_contrastive", {}),
    ("hard_contrastive", {"hard_ratios": (0.2,), "average_over": "ordered"}),
    ("pddm", LEARNED),
    ("pddm", {**LEARNED, **ONE_QUADRUPLET}),
    ("pddm", {**LEARNED, "num_quadruplets": 1, "beta": 2.0, "embedding_weight": 1.0}),
    ("pddm", {**LEARNED, "embedding_mining": "similarity", "squared": True}),
    ("pddm", {**LEARNED, "temperature": None}),
    ("pddm", {**LEARNED, **ONE_QUADRUPLET, "score_scale": "local"}),
    ("pddm", {**LEARNED, "score_scale": "local", "num_quadruplets": "per_class"}),
    ("pddm", {**LEARNED, "score_scale": "sigmoid", "alpha": 0.5, "beta": 1.0}),
    (
        "pddm",
        {
            **LEARNED,
            **ONE_QUADRUPLET,
            "squared": False,
            "mine_with_dropout": False,
        },
    ),
    ("lmdm", LEARNED),
    ("lmdm", {**LEARNED, **ONE_QUADRUPLET}),
    ("pddm_triplet", {**LEARNED, **ONE_QUADRUPLET, "score_scale": "sigmoid"}),
    ("quadruplet", {}),
    ("quadruplet", {"temperature": None}),
    ("quadruplet", {"num_quadruplets": 1, "beta": 1.0, "squared": True, "temperature": None}),
    ("quadruplet", {"headers": 1, "normalize": False}),
    ("weighted_sum", {"parts": {"contrastive": 1.0, "lifted": [0.5, {"margin": 2.0}]}}),
]
HIDDEN = ("initial_density", "regularizer", "similarity", "initializer")
IDS = [
    "-".join(
        [
            name,
            *(f"{k}={v}" for k, v in options.items() if not (k in HIDDEN or isinstance(v, dict))),
        ]
    )
    for name, options in CASES
]
# One case for each code path, and what only that path has.
PATHS = {
    "arcface-num_classes=12": "margin on the angle to one proxy",
    "arcface-num_classes=12-scale=5.0-straight_through=True": "value and slope apart",
    "cosface-num_classes=12": "margin on the cosine",
    "norm_softmax-num_classes=12": "softmax over proxies",
    "proxy_anchor-num_classes=12": "log-sum-exp over rows",
    "proxy_nca-num_classes=12-scale=2.0-variant=classic-proxy_multiplier=2.0": "softmax of others",
    "soft_triple-num_classes=12-scale=4.0-gamma=0.5-margin=0.1-weight=0.7-centers=3": "softmax "
    "over centers, and their distances",
    "sub_center_arcface-num_classes=12": "the nearest of several centers",
    "binomial": "softplus of products",
    "circle": "weights without gradient",
    "clustering": "the search for medoids",
    "contrastive": "squared distances, mean over active pairs",
    "contrastive-margin=0.5-squared=False-average_over=pairs": "roots, mean over pairs",
    "contrastive-pairs=halves-squared_hinge=True-margin=5.0-normalize=False": "pairs by position",
    "coupled_clusters": "class means of raw rows, nearest negative",
    "density-weight=0.5": "targets of classes and their correlation",
    "histogram": "bins of products",
    "histogram-num_bins=33-normalize=False": "products beyond the last bin",
    "regularized-base=contrastive": "global orthogonal regularizer",
    "regularized-base=lifted-weight=0.3": "entropy of a density estimate, raw rows",
    "regularized-base=hdc": "entropy of pairs, levels of unit length",
    "triplet": "count of all triplets by positives, mean over triplets",
    "triplet-average_over=batch-squared=False-normalize=False": "the same with roots of raw rows",
    "triplet-mining=semihard": "nearest negative beyond the positive",
    "triplet-mining=hard-margin=0.2-squared=False-average_over=batch": "hardest of each anchor",
    "lifted": "log-sum-exp over negatives",
    "lifted-variant=max": "maximum over negatives",
    "matryoshka-base=triplet-dims=(6, 3)": "parts of the rows",
    "memory-base=contrastive-size=30": "references beyond the batch",
    "multi_similarity": "mining by the hardest of each row",
    "ntxent": "softmax of each pair among negatives, mean over pairs",
    "recall_at_k-rank_temperature=0.1": "ranks among all",
    "roadmap-temperature=0.1": "ranks by a step of three parts, calibration",
    "sampled_classes-rate=0.5-seed=1": "all classes outside training",
    "sincere": "softmax among negatives, mean over anchors",
    "smooth_ap-temperature=0.1": "ranks among positives and negatives",
    "supcon": "softmax of each pair among all, mean over anchors",
    "npair-pairs=first-scale=1.0": "position of a row in its class",
    "npair-scale=1.0-normalize=False-l2=0.01": "all pairs, products and lengths of raw rows",
    "hdc-selection=cascade-hard_ratios=(0.8, 0.6, 0.3)-margin=5.0": "candidates of the last level",
    "hdc-selection=previous-squared=False-average_over=sum-margin=1.5": "rank by the last level",
    "hard_contrastive-hard_ratios=(0.2,)-average_over=ordered": "pairs counted twice, or once",
    "pddm": "matrix with gradients",
    "pddm-num_quadruplets=1-score_scale=minmax-alpha=0.5-beta=1.0-temperature=None"
    "-embedding_mining=similarity-squared=True": "range of all",
    "pddm-num_quadruplets=1-score_scale=local-alpha=0.5-beta=1.0-temperature=None"
    "-embedding_mining=similarity-squared=True": "no matrix",
    "pddm-score_scale=local-num_quadruplets=per_class": "quadruplets of classes, their ranges",
    "quadruplet": "mining by distance, smooth",
    "quadruplet-temperature=None": "mining by distance",
    "weighted_sum": "unit rows and raw rows of two parts",
}
# For what `base.py` decides: unit rows, raw rows, and rows of several levels.
OF_BASE = {"contrastive", "coupled_clusters", "hdc"}


def by_default(ids):
    """Parametrizes a test by the cases, those not among `ids` slow."""
    assert {*ids} <= {*IDS}
    cases = [
        pytest.param(*case, id=case_id, marks=() if case_id in ids else pytest.mark.slow)
        for case, case_id in zip(CASES, IDS, strict=True)
    ]
    return pytest.mark.parametrize(("name", "options"), cases)


every_loss, every_path, some_losses = by_default(IDS), by_default(PATHS), by_default(OF_BASE)
BATCHES = {
    "balanced": [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2],
    "uneven": [5, 1, 1, 3, 1, 5, 1, 1, 7, 5, 1, 3],
    "pairs": [0, 1, 2, 3, 4, 5, 5, 4, 3, 2, 1, 0],
}


def rows(rng, batch=12, dim=6):
    return rng.normal(size=(batch, dim))


def test_the_cases_name_every_loss_and_every_option():
    assert {name for name, _ in CASES} == set(losses.LOSSES)
    paths = {losses.LOSSES[name] for (name, _), i in zip(CASES, IDS, strict=True) if i in PATHS}
    assert paths == {*losses.LOSSES.values()}
    for class_name in paths:
        names = [name for name, found in losses.LOSSES.items() if found == class_name]
        tried = set().union(*(options for name, options in CASES if name in names))
        assert tried == set(inspect.signature(getattr(losses, class_name)).parameters) - {"name"}


OF_LAYER = ("num_classes", "initializer", "proxy_multiplier")


def oracle_of(name, options, loss, x):
    """The oracle of a loss near `x`, as a function of labels and rows."""
    oracle = functools.partial(getattr(oracles, name), **options)
    if isinstance(loss, losses.DoubleHeaderHingeLoss):
        oracle = functools.partial(oracle, held_at=x)
    if "initializer" in options or name == "sampled_classes":
        if not loss.layer.built:
            loss.layer.build(x.shape)
        given = {name: value for name, value in options.items() if name not in OF_LAYER}
        proxies = keras.ops.convert_to_numpy(loss.layer.proxies)
        oracle = functools.partial(getattr(oracles, name), proxies=proxies, **given)
    if isinstance(loss, losses.CircleLoss) or options.get("straight_through"):
        oracle = functools.partial(oracle, at=x)
    return oracle


@every_loss
def test_value_and_gradient_equal_those_of_its_oracle(name, options, rng):
    loss, x, step = losses.get(name, **options), rows(rng), 1e-6
    oracle, evaluate = oracle_of(name, options, loss, x), differentiable(loss, x.shape[1])
    for layout in ("balanced", "pairs", "uneven"):
        labels = np.array(BATCHES[layout])
        value, gradient = evaluate(labels, x)
        np.testing.assert_allclose(value, oracle(labels, x), rtol=DOUBLE, err_msg=layout)
        assert value != 0
    slopes, close = [], {"rtol": max(1e-7, DOUBLE), "atol": max(2e-7, DOUBLE)}
    for direction in rng.normal(size=(4, *x.shape)):
        move = step * direction
        slopes.append((oracle(labels, x + move) - oracle(labels, x - move)) / (2 * step))
        np.testing.assert_allclose(np.sum(gradient * direction), slopes[-1], **close)
    assert np.abs(slopes).max() > 0


@pytest.mark.slow
@every_loss
def test_every_partial_derivative_equals_a_central_difference(name, options, rng):
    loss, labels, x = losses.get(name, **options), np.array(BATCHES["uneven"]), rows(rng)
    _, gradient = value_and_gradient(loss, labels, x)
    oracle, step = oracle_of(name, options, loss, x), 1e-6
    numeric = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        above, below = x.copy(), x.copy()
        above[index] += step
        below[index] -= step
        numeric[index] = (oracle(labels, above) - oracle(labels, below)) / (2 * step)
    assert np.abs(numeric).max() > 0
    rounding = 4 * np.finfo(float).eps * abs(oracle(labels, x)) / step
    np.testing.assert_allclose(gradient, numeric, atol=max(1e-7, rounding))


@slow_on_jax
def test_counts_the_hardest_pairs_where_a_float_is_below_their_number(rng):
    assert 0.29 * 100 < 29
    labels, x = np.repeat([0, 1], 10), rows(rng, batch=20)
    options = {"hard_ratios": (0.29,), "margin": 5.0, "mine_positives": True}
    value = float(losses.get("hard_contrastive", **options)(labels, x))
    expected = oracles.hard_contrastive(labels, x, **options)
    np.testing.assert_allclose(value, expected, rtol=DOUBLE)


@pytest.mark.parametrize("pairs", ["first", "disjoint"])
def test_a_class_of_a_single_row_is_in_no_group_of_pairs(pairs, rng):
    labels, x = np.array([0, 1, 1, 2, 2, 3]), rows(rng, batch=6)
    value = float(losses.get("npair", pairs=pairs)(labels, x))
    np.testing.assert_allclose(value, oracles.npair(labels, x, pairs=pairs), rtol=DOUBLE)


@every_loss
def test_ignores_the_order_of_the_batch(name, options, rng):
    base = options.get("base")
    part = base if isinstance(base, dict) else options if name == "npair" else {}
    if part.get("pairs", "all") != "all":
        # The order of the rows of one class names anchor and positive: only classes may move.
        order = np.concatenate([np.arange(4 * c, 4 * c + 4) for c in (2, 0, 1)])
    elif options.get("pairs") == "halves":
        first = rng.permutation(6)
        order = np.concatenate([first + 6, first])  # the pairs stay
    else:
        order = rng.permutation(12)
    loss, labels, x = losses.get(name, **options), np.array(BATCHES["balanced"]), rows(rng)
    if getattr(loss, "headers", 2) == 1:
        pytest.skip("the first row of a pair is the anchor of the one header")
    value, gradient = value_and_gradient(loss, labels, x)
    moved_value, moved_gradient = value_and_gradient(loss, labels[order], x[order])
    np.testing.assert_allclose(moved_value, value, rtol=DOUBLE)
    np.testing.assert_allclose(moved_gradient, gradient[order], atol=DOUBLE)


@some_losses
def test_ignores_what_classes_are_called(name, options, rng):
    loss, labels, x = losses.get(name, **options), np.array(BATCHES["uneven"]), rows(rng)
    if loss.num_classes is not None:
        pytest.skip("knows its classes by their ids")
    value = float(loss(labels, x))
    names = [labels - 7, labels + 256, labels + 2**24, labels + 2**40, labels * 2**32]
    for renamed, shape in itertools.product(names, [(12,), (12, 1)]):
        assert float(loss(renamed.reshape(shape), x)) == value, f"{renamed} of shape {shape}"


@every_path
def test_ignores_rotations_of_the_space(name, options, rng):
    loss, labels, x = losses.get(name, **options), np.array(BATCHES["uneven"]), rows(rng)
    if loss.traits.learns_similarity:
        pytest.skip("a learned similarity knows where the axes lie")
    if "initializer" in options or name in ("matryoshka", "sampled_classes"):
        pytest.skip("proxies, and the first numbers of rows, do not turn with the rows")
    levels = np.split(x, getattr(loss, "levels", 1), axis=1)  # a space each
    turned = [part @ np.linalg.qr(rng.normal(size=(part.shape[1],) * 2))[0] for part in levels]
    rotated, value = float(loss(labels, np.concatenate(turned, axis=1))), float(loss(labels, x))
    np.testing.assert_allclose(rotated, value, rtol=DOUBLE)


DEGENERATE_LABELS = {
    "one class": [3] * 12,
    "all different": range(12),
    "two classes": [0, 1] * 6,
    "one row": [1],
    "one pair": [1, 1],
}


# Losses without valid tuples in a batch of one class or of single rows.
OF_TUPLES = {"clustering", "coupled_clusters", "triplet", "lifted", "npair", "histogram"}
OF_TUPLES |= {"pddm", "lmdm", "pddm_triplet", "quadruplet"}
OF_TUPLES |= {"circle", "multi_similarity", "ntxent"}


@every_path
@pytest.mark.parametrize(
    "layout",
    [
        "one class",
        "all different",
        "two classes",
        "one row",
        pytest.param("one pair", marks=pytest.mark.slow),  # goes the way of one class
    ],
)
def test_stays_finite_on_degenerate_batches(name, options, layout, rng):
    labels = DEGENERATE_LABELS[layout]
    evaluate = of_case(name, json.dumps(options), dim=6)
    x = rows(rng, len(labels)).astype("float32")
    for kind, degenerate in {
        "spread": x,
        "collapsed": np.broadcast_to(x[:1], x.shape),
        "zero": 0 * x,
        "half zero": x * (np.arange(len(x)) % 2)[:, None].astype("float32"),
        "tiny": np.float32(1e-20) * x,
        "huge": np.float32(1e15) * x,
    }.items():
        value, gradient = evaluate(np.array(labels), degenerate)
        assert np.isfinite(value), kind
        assert value >= 0 or name in ("density", "regularized"), kind
        assert np.isfinite(gradient).all(), kind
        beyond_tuples = options.get("l2") or options.get("epsilon", 0) is None
        no_tuples = name in OF_TUPLES and layout != "two classes" and not beyond_tuples
        if no_tuples and kind == "spread":
            assert value == 0
            assert not gradient.any()


@every_path
def test_does_not_hide_a_nan(name, options, rng):
    loss, labels = losses.get(name, **options), np.array(BATCHES["balanced"])
    for row in (0, 3):  # N-pair takes the first two of a class
        x = rows(rng)
        x[row, 2] = np.nan
        assert np.isnan(float(loss(labels, x))), row


@every_path
def test_is_the_same_in_eager_graph_and_xla_in_float32(name, options, rng):
    loss = losses.get(name, **options)
    of_any_size, of_one_size = float32_forms(name, json.dumps(options), dim=6)
    for batch, forms in ((12, of_any_size + of_one_size), (8, of_any_size)):
        labels, x = np.array(BATCHES["uneven"])[:batch], rows(rng)[:batch].astype("float32")
        value = float(loss(labels, x.astype("float64"))) if forms else None
        for form in forms:
            found = form(labels, x)
            assert keras.backend.standardize_dtype(found.dtype) == "float32"
            np.testing.assert_allclose(float(found), value, rtol=1e-5)


@some_losses
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_computes_in_float32_or_better(name, options, dtype, rng):
    loss, labels = losses.get(name, **options), np.array(BATCHES["uneven"])
    low = keras.ops.cast(rows(rng), dtype)
    exact = np.asarray(keras.ops.convert_to_numpy(keras.ops.cast(low, "float64")))
    value = loss(labels, low)
    expected = "float64" if dtype == "float64" else "float32"
    assert keras.backend.standardize_dtype(value.dtype) == expected
    oracle = oracle_of(name, options, loss, exact)
    np.testing.assert_allclose(float(value), oracle(labels, exact), rtol=1e-5)


@every_loss
def test_is_rebuilt_from_its_config(name, options, rng):
    loss, labels, x = losses.get(name, **options), np.array(BATCHES["uneven"]), rows(rng)
    restored = keras.losses.deserialize(keras.losses.serialize(loss))
    assert type(restored) is type(loss)
    assert restored.get_config() == loss.get_config()
    value = float(loss(labels, x))
    assert float(restored(labels, x)) == pytest.approx(value, rel=REPEATED, abs=0)


@slow_on_jax
@every_path
def test_descending_it_separates_the_classes(name, options, rng):
    labels, x = np.repeat(np.arange(4), 4), rng.normal(size=(16, 12))
    loss = losses.get(name, **options)
    if loss.traits.learns_similarity:
        pytest.skip("mines by what it learns: see test_double_header")
    if getattr(loss, "centers", 1) > 1:
        pytest.skip("rows of one class may go to several centers")
    if options.get("pairs") == "halves":
        pytest.skip("pairs each row with one other, of its class or not")
    if name == "histogram" and not loss.normalize:
        pytest.skip("products beyond 1 are clamped, and have no gradient")
    gradient_of = compiled_gradient(loss, labels)
    mean, square = np.zeros_like(x), np.zeros_like(x)
    for step in range(1, 101):  # Adam
        gradient = gradient_of(x)
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.99 * square + 0.01 * gradient**2
        corrected = np.sqrt(square / (1 - 0.99**step)) + 1e-12
        x = x - 0.1 * mean / (1 - 0.9**step) / corrected
    x = oracles.unit(x) if loss.normalize else x
    distances = np.linalg.norm(x[:, None] - x[None], axis=2) + 1e9 * np.eye(16)
    # N-pair on the first two rows of a class leaves the others where they are.
    first_two = name == "npair" and options.get("pairs") == "first"
    trained = np.arange(16) % 4 < (2 if first_two else 4)
    nearest = np.flatnonzero(trained)[distances[:, trained].argmin(axis=1)]
    assert np.mean((labels[nearest] == labels)[trained]) > 0.9


def test_rejects_wrong_input():
    loss, x = losses.get("contrastive"), np.zeros((4, 2), "float32")
    labels = np.array([0, 0, 1, 1])
    for floats in (x, keras.ops.convert_to_tensor(x)):
        for swapped in (labels, list(labels), keras.ops.convert_to_tensor(labels)):
            with pytest.raises(TypeError, match=r"`labels`.*Received: dtype=float32.*swapped"):
                loss(floats, swapped)
        with pytest.raises(TypeError, match=r"`labels`.*Received: dtype=float32$"):
            loss(floats[:, 0], x)
    with pytest.raises(TypeError, match=r"`labels`.*Received: dtype=object$"):
        loss(None, x)
    names = re.escape("names by np.unique(labels, return_inverse=True)[1]. Received: dtype=")
    for of in (str, object):
        with pytest.raises(TypeError, match=names):
            loss(np.array(["a", "a", "b", "b"], of), x)
    rows = re.escape("convert one-hot rows by np.argmax(labels, axis=1). Received: ")
    for dtype, error in (("float32", TypeError), ("int64", ValueError)):
        with pytest.raises(error, match=rows):
            loss(np.eye(4, dtype=dtype), x)
    with pytest.raises(TypeError, match=r"`embeddings`.*Received: dtype=object$"):
        loss(labels, None)
    with pytest.raises(TypeError, match=r"`embeddings`.*Received: dtype=int"):
        loss(labels, labels[:, None])
    with pytest.raises(ValueError, match=r"batch size.*Received: labels.shape=\(3,\)"):
        loss(labels[:3], x)
    with pytest.raises(ValueError, match=r"`labels`.*Received: labels.shape=\(2, 2\)"):
        loss(labels.reshape(2, 2), x)
    with pytest.raises(ValueError, match=r"`embeddings`.*Received: .*\(8,\)"):
        loss(labels, x.reshape(-1))
    with pytest.raises(ValueError, match=r"batch.*Received: .*\(0, 2\)"):
        loss(labels[:0], x[:0])
    with pytest.raises(ValueError, match=r"ContrastiveLoss.*`sample_weight`"):
        loss(labels, x, sample_weight=np.ones(4))


@pytest.mark.parametrize(
    ("name", "options", "argument", "received"),
    [
        ("contrastive", {"margin": -1.0}, "margin", -1.0),
        ("triplet", {"margin": float("nan")}, "margin", "nan"),
        ("lifted", {"margin": float("inf")}, "margin", "inf"),
        ("triplet", {"mining": "easy"}, "mining", "'easy'"),
        ("lifted", {"variant": "soft"}, "variant", "'soft'"),
        ("contrastive", {"average_over": "triplets"}, "average_over", "'triplets'"),
        ("contrastive", {"pairs": "first"}, "pairs", "'first'"),
        ("contrastive", {"squared": False, "squared_hinge": True}, "squared_hinge", True),
        ("npair", {"l2": -0.1, "normalize": False}, "l2", -0.1),
        ("npair", {"l2": 0.1}, "l2", 0.1),
        ("pddm", {"num_quadruplets": True}, "num_quadruplets", True),
        ("pddm", {"num_quadruplets": 2}, "num_quadruplets", 2),
        ("pddm", {"headers": 1.0}, "headers", 1.0),
        ("pddm", {"headers": 3}, "headers", 3),
        ("pddm", {"alpha": 0.0}, "alpha", 0.0),
        ("pddm", {"score_scale": "max"}, "score_scale", "'max'"),
        ("quadruplet", {"embedding_weight": 0}, "embedding_weight", 0),
        ("binomial", {"negative_cost": 0}, "negative_cost", 0),
        ("histogram", {"num_bins": 1}, "num_bins", 1),
        ("coupled_clusters", {"margin": 0}, "margin", 0),
        ("regularized", {"base": {"margin": 1.0}, "regularizer": "gor"}, "base", "{'margin': 1.0}"),
        ("regularized", {"base": {"name": ["a"]}, "regularizer": "gor"}, "base", "{'name': ['a']}"),
        ("regularized", {"base": {1: 2, "name": "triplet"}, "regularizer": "gor"}, "base", "{1: 2"),
        ("density", {"alpha_init": float("inf")}, "alpha_init", "inf"),
        ("density", {"alpha_multiplier": -1}, "alpha_multiplier", -1),
        ("binomial", {"beta": float("inf")}, "beta", "inf"),
        ("regularized", {"base": "triplet", "regularizer": "gor", "weight": 0}, "weight", 0),
        ("density", {"eta": 1.5}, "eta", 1.5),
        ("density", {"initial_density": [0.1, -1]}, "initial_density", "[0.1, -1]"),
        ("density", {"initial_density": [0.1, "x"]}, "initial_density", "[0.1, 'x']"),
        ("density", {"initial_density": [0.1], "num_classes": 2}, "initial_density", None),
        ("density", {"num_classes": 0}, "num_classes", 0),
        ("hdc", {"levels": 0}, "levels", 0),
        ("hdc", {"levels": 2}, "hard_ratios", "(1.0, 0.5, 0.2)"),
        ("hdc", {"hard_ratios": (1, 0.5, 0)}, "hard_ratios", "(1, 0.5, 0)"),
        ("hdc", {"hard_ratios": (1.5, 1, 0.5)}, "hard_ratios", "(1.5, 1, 0.5)"),
        ("hdc", {"level_weights": [1, 1, -1]}, "level_weights[2]", -1),
        ("hdc", {"selection": "own"}, "selection", "'own'"),
        (
            "hdc",
            {"selection": "cascade", "average_over": "ordered"},
            "average_over='ordered'",
            None,
        ),
        ("clustering", {"gamma": 0}, "gamma", 0),
        ("clustering", {"swaps": -1}, "swaps", -1),
        ("recall_at_k", {"k": 4}, "k", 4),
        ("recall_at_k", {"k": (True, 2)}, "k", "(True, 2)"),
        ("recall_at_k", {"k": (0, 1)}, "k", "(0, 1)"),
        ("matryoshka", {"base": "triplet", "dims": ()}, "dims", "()"),
        ("matryoshka", {"base": "triplet", "dims": (8, 8)}, "dims", "(8, 8)"),
    ],
)
def test_rejects_wrong_options(name, options, argument, received):
    shown = "" if received is None else f"{argument}={received}"
    message = re.escape(f"`{argument}`") + ".*Received: .*" + re.escape(shown)
    with pytest.raises(ValueError, match=message):
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
    ],
)
def test_names_an_unknown_option_and_the_known_ones(name, options, said):
    with pytest.raises(ValueError, match=".*".join(map(re.escape, said))):
        losses.get(name, **options)


def test_rejects_a_width_that_does_not_divide_into_levels():
    with pytest.raises(ValueError, match=r"`embeddings`.*Received: .*\(4, 5\), levels=3"):
        losses.get("hdc")(np.array([0, 0, 1, 1]), np.zeros((4, 5), "float32"))


@pytest.mark.parametrize("option", [{"similarity": "cosine"}, {"mine_with_dropout": 1}])
def test_rejects_an_option_of_a_wrong_type(option):
    [(name, value)] = option.items()
    with pytest.raises(TypeError, match=f"`{name}`.*Received: {name}={value!r}"):
        losses.get("pddm", **option)


@pytest.mark.parametrize("value", ["1", None, True, [1.0]])
def test_rejects_an_option_that_is_no_number(value):
    with pytest.raises(TypeError, match=f"`margin`.*Received: {re.escape(f'margin={value!r}')}"):
        losses.get("contrastive", margin=value)


@every_loss
def test_takes_numpy_scalars_and_keeps_plain_numbers(name, options):
    plain = losses.get(name, **options).get_config()
    scalars = {
        option: np.asarray(value, "float32" if isinstance(value, float) else "int64")[()]
        for option, value in plain.items()
        if type(value) in (int, float) and option != "num_quadruplets"
    }
    config = losses.get(name, **{**options, **scalars}).get_config()
    assert {option: type(value) for option, value in config.items()} == {
        option: type(value) for option, value in plain.items()
    }
    np.testing.assert_allclose(
        [config[option] for option in scalars], [plain[option] for option in scalars], rtol=1e-6
    )


def test_rejects_a_normalize_that_is_no_bool():
    for name, class_name in losses.LOSSES.items():
        if "normalize" not in inspect.signature(getattr(losses, class_name)).parameters:
            continue
        with pytest.raises(TypeError, match=r"`normalize`.*Received: normalize='yes'"):
            losses.get(name, normalize="yes")


GOLDEN = pathlib.Path(__file__).parents[2] / "golden"
DENSITY_BASES = {  # golden case -> its base, and how many terms it sums where the base averages
    "dmlda_con_batch": ({"name": "contrastive", "average_over": "batch"}, 1.0),
    "dmlda_con_sum": ({"name": "contrastive", "average_over": "sum"}, 1.0),
    "dmlda_tri_mean": ("triplet", 1.0),
    "dmlda_np_sum": ({"name": "npair", **FIRST}, 3.0),
}


def golden_cases():
    """(case, loss, factor) for the golden cases that the losses of the table express."""
    content = json.loads((GOLDEN / "golden.json").read_text())
    for case in content["cases"]:
        args, function = case["args"], case["fn"]
        inputs = [case["input"]] if isinstance(case["input"], str) else case["input"]
        parts = [content["inputs"][name] for name in inputs if name in content["inputs"]]
        factor = 1.0
        if function in ("lifted", "lifted_hard"):
            variant = args.get("nested", "smooth")
            options = {"margin": args["alpha"], "normalize": args["normalize"], "variant": variant}
            loss = losses.get("lifted", **options)
        elif function == "contrastive_allpairs" and args["reduction"] != "separate":
            over = {"ordered": "pairs"}.get(args["reduction"], args["reduction"])
            loss = losses.get(
                "contrastive", margin=args["M"], squared=args["squared"], average_over=over
            )
        elif function == "triplet_all":
            over = {"mean": "triplets"}.get(args["reduction"], args["reduction"])
            loss = losses.get("triplet", margin=args["margin"], average_over=over)
        elif function == "npair":
            pairs = "all" if isinstance(args["tuples"], str) else "first"
            loss = losses.get(
                "npair", pairs=pairs, scale=1.0, normalize=args["normalize"], l2=args["l2reg"]
            )
            factor = len(args["tuples"]) if args["reduction"] == "sum" else 1.0
        elif function == "histogram_loss":
            loss = losses.get("histogram", num_bins=args["R"])
        elif function == "binomial_deviance":
            loss = losses.get(
                "binomial", alpha=args["alpha"], beta=args["beta"], negative_cost=args["C"]
            )
        elif function == "coupled_clusters":
            loss = losses.get("coupled_clusters", margin=args["margin"])
            others = range(1, 1 + len(args["neg"]))  # no positive sets of their own
            parts = [{**parts[0], "y": [*(0 for _ in args["pos"]), *others]}]
        elif function == "L + 10*density_reg(eq8)":
            base, factor = DENSITY_BASES[case["name"].rpartition("_")[0]]
            options = {"base": base, "initial_density": list(args["d0"].values())}
            loss = losses.get("density", weight=args["lambda"] / factor, **options)
        elif function == "hdc":
            loss = losses.get(
                "hdc",
                preset="published",
                levels=len(inputs),
                hard_ratios=[percent / 100 for percent in args["h"]],
                margin=args["M"],
                squared=args["squared"],
                selection=args["selection"],
                average_over=args.get("reduction", "sum"),
            )
        elif function == "hdc_release_value":
            loss = losses.get(
                "hard_contrastive",
                preset="published",
                hard_ratios=[args["hard_ratio"]],
                margin=args["M"],
                average_over="ordered",
                negative_factor=args["factor"],
            )
        else:
            continue
        x = np.concatenate([part["X"] for part in parts], axis=1)
        gradient = np.array(case["grad"])
        if len(parts) > 1:
            gradient = np.concatenate(gradient, axis=1)
        data = {"x": x, "labels": parts[0]["y"], "gradient": gradient}
        yield pytest.param(case, data, loss, factor, id=case["name"])


GOLDEN_CASES = list(golden_cases())


def test_the_golden_file_has_its_102_cases():
    assert len(GOLDEN_CASES) == 102


@slow_on_jax
@pytest.mark.parametrize(("case", "data", "loss", "factor"), GOLDEN_CASES)
def test_equals_the_golden_values(case, data, loss, factor):
    labels = np.array(data["labels"])
    for dtype, tolerance in PRECISIONS:
        value, gradient = value_and_gradient(loss, labels, data["x"].astype(dtype))
        assert abs(factor * value - case["value"]) <= tolerance * max(1.0, abs(case["value"]))
        np.testing.assert_allclose(factor * gradient, data["gradient"], atol=tolerance)


@slow_on_jax
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
def test_equals_the_golden_values_of_listed_pairs(normalize, dtype, tolerance):
    content = json.loads((GOLDEN / "golden.json").read_text())
    name = f"contrastive_eq1_A_{normalize}"
    case = next(case for case in content["cases"] if case["name"] == name)
    batch = content["inputs"][case["input"]]
    rows_of_pairs = np.array(case["args"]["pairs"]).T.reshape(-1)  # the left ones, the right ones
    loss = losses.get(
        "contrastive",
        margin=case["args"]["alpha"],
        pairs="halves",
        squared_hinge=True,
        average_over="batch",
        normalize=normalize,
    )
    x = np.array(batch["X"], dtype)[rows_of_pairs]
    value, gradient = value_and_gradient(loss, np.array(batch["y"])[rows_of_pairs], x)
    of_rows = np.zeros((len(batch["X"]), x.shape[1]))
    np.add.at(of_rows, rows_of_pairs, gradient)
    assert abs(value - case["value"]) <= tolerance
    np.testing.assert_allclose(of_rows, case["grad"], atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "key", "raw", "unit"),
    [
        ("lifted", {"margin": 1.0}, "lifted", 12.62638, 11.10282),
        ("triplet", {"mining": "semihard", "squared": False}, "semihard", 0.849135, 0.954043),
        ("triplet", {"mining": "semihard"}, "semihard_sq", None, None),
        ("triplet", {"mining": "hard", "squared": False}, "hard", 3.206317, 1.752096),
        (
            "triplet",
            {"margin": 0.05, "squared": False, "average_over": "active"},
            None,
            None,
            0.299276,
        ),
    ],
)
def test_equals_tensorflow_addons_and_the_peer_libraries(name, options, key, raw, unit):
    golden = json.loads((GOLDEN / "tfa_golden.json").read_text())
    labels, x = np.array(golden["y"]), np.array(golden["e"], "float32")
    if key is not None:
        value = float(losses.get(name, **options, normalize=False)(labels, x))
        np.testing.assert_allclose(value, golden["tfa"][key], rtol=1e-5)
    x = np.random.default_rng(0).normal(size=(24, 8)).astype("float32")
    labels = np.repeat(np.arange(6), 4)
    for normalize, expected in ((False, raw), (True, unit)):
        if expected is not None:
            value = float(losses.get(name, **options, normalize=normalize)(labels, x))
            np.testing.assert_allclose(value, expected, rtol=1e-5)


def test_a_single_active_triplet_is_the_mean_over_the_active():
    options = {"margin": 0.1, "squared": False, "normalize": False, "average_over": "active"}
    rows = np.array([[0.0], [1.0], [-1.05]])
    loss = losses.get("triplet", **options)
    np.testing.assert_allclose(float(loss(np.array([0, 0, 1]), rows)), 0.05, rtol=1e-6)
