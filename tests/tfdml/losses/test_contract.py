"""What every loss promises, for every loss and option, on any backend of Keras."""

import inspect
import itertools
import json

import keras
import numpy as np
import oracles
import pytest
from backend import (
    DOUBLE,
    REPEATED,
    differentiable,
    float32_forms,
    of_case,
    slow_on_jax,
)
from cases import (
    CASES,
    PATHS,
    each_kind,
    every_class,
    every_loss,
    every_path,
    some_losses,
    xla_losses,
)

from tfdml import losses

BALANCED = np.repeat([0, 1, 2], 4)
PAIRS = np.array([0, 1, 2, 3, 4, 5, 5, 4, 3, 2, 1, 0])
UNEVEN = np.array([5, 1, 1, 3, 1, 5, 1, 1, 2, 5, 1, 3])  # a single row of class 2
SETS = np.eye(4, dtype=int)[PAIRS % 4] | np.eye(4, dtype=int)[UNEVEN % 4]  # of labels of a row
SETS[:2] = 0  # none


def rows(rng, batch=12, dim=6):
    return rng.normal(size=(batch, dim))


def test_the_cases_name_every_loss_and_every_option():
    assert {name for name, _ in CASES} == set(losses.LOSSES)
    assert {losses.LOSSES[name] for name, _ in PATHS} == {*losses.LOSSES.values()}
    for class_name in losses.LOSSES.values():
        names = [name for name, found in losses.LOSSES.items() if found == class_name]
        tried = set().union(*(options for name, options in CASES if name in names))
        assert tried == set(inspect.signature(getattr(losses, class_name)).parameters) - {"name"}


@every_loss
def test_value_and_gradient_equal_those_of_its_oracle(name, options, rng):
    loss, x, step = losses.get(name, **options), rows(rng), 1e-6
    evaluate, close = differentiable(loss, x.shape[1]), max(2e-7, DOUBLE)
    for labels in (PAIRS, UNEVEN, SETS) if loss.traits.takes_label_sets else (PAIRS, UNEVEN):
        value, gradient = evaluate(labels, x)
        np.testing.assert_allclose(value, oracles.value(loss, labels, x), rtol=DOUBLE)
        assert value != 0
        direction = rng.normal(size=x.shape)
        above, below = (
            oracles.value(loss, labels, x + sign * step * direction, at=x) for sign in (1, -1)
        )
        slope = (above - below) / (2 * step)
        np.testing.assert_allclose(np.sum(gradient * direction), slope, rtol=close, atol=close)
        assert slope != 0


@slow_on_jax
def test_counts_the_hardest_pairs_where_a_float_is_below_their_number(rng):
    assert 0.29 * 100 < 29
    labels, x = np.repeat([0, 1], 10), rows(rng, batch=20)
    options = {"hard_ratios": (0.29,), "margin": 5.0, "mine_positives": True}
    loss = losses.get("hard_contrastive", **options)
    np.testing.assert_allclose(float(loss(labels, x)), oracles.value(loss, labels, x), rtol=DOUBLE)


def test_a_single_active_triplet_is_the_mean_over_the_active():
    options = {"margin": 0.1, "squared": False, "normalize": False, "average_over": "active"}
    loss = losses.get("triplet", **options)
    value = float(loss(np.array([0, 0, 1]), np.array([[0.0], [1.0], [-1.05]])))
    np.testing.assert_allclose(value, 0.05, rtol=1e-6)


@some_losses
def test_ignores_what_classes_are_called(name, options, rng):
    loss, labels, x = losses.get(name, **options), UNEVEN, rows(rng)
    value = float(loss(labels, x))
    names = [labels - 7, labels + 256, labels + 2**24, labels + 2**40, labels * 2**32]
    for renamed, shape in itertools.product(names, [(12,), (12, 1)]):
        assert float(loss(renamed.reshape(shape), x)) == value, f"{renamed} of shape {shape}"
    for dtype in ("uint8", "int16", "uint32"):
        assert float(loss(keras.ops.convert_to_tensor(labels.astype(dtype)), x)) == value


DEGENERATE_LABELS = {
    "one class": [3] * 12,
    "all different": range(12),
    "two classes": [0, 1] * 6,
    "one row": [1],
}
# Losses without valid tuples in a batch of one class or of single rows.
OF_TUPLES = {"clustering", "coupled_clusters", "triplet", "lifted", "npair", "histogram"}
OF_TUPLES |= {"pddm", "lmdm", "pddm_triplet", "quadruplet"}
OF_TUPLES |= {"circle", "multi_similarity", "ntxent"}


@every_path
@pytest.mark.parametrize("layout", DEGENERATE_LABELS)
def test_stays_finite_on_degenerate_batches(name, options, layout, rng):
    labels = DEGENERATE_LABELS[layout]
    evaluate = of_case(name, json.dumps(options), dim=12)
    x = rows(rng, len(labels), dim=12).astype("float32")
    kinds = {"spread": x, "collapsed": np.broadcast_to(x[:1], x.shape), "zero": 0 * x}
    if layout == "two classes":
        kinds["half zero"] = x * (np.arange(len(x)) % 2)[:, None].astype("float32")
        kinds |= {"tiny": np.float32(1e-20) * x, "huge": np.float32(1e15) * x}
    for kind, degenerate in kinds.items():
        value, gradient = evaluate(np.array(labels), degenerate)
        assert np.isfinite(value), kind
        assert value >= 0 or name in ("density", "regularized"), kind
        assert np.isfinite(gradient).all(), kind
        no_tuples = name in OF_TUPLES and layout != "two classes" and not options.get("l2")
        if no_tuples and kind == "spread":
            assert value == 0
            assert not gradient.any()


@every_class
def test_does_not_hide_a_nan(name, options, rng):
    loss, labels = losses.get(name, **options), BALANCED
    for row in (0, 3):  # N-pair takes the first two of a class
        x = rows(rng)
        x[row, 2] = np.nan
        assert np.isnan(float(loss(labels, x))), row


@xla_losses
def test_is_the_same_in_eager_graph_and_xla_in_float32(name, options, rng):
    loss = losses.get(name, **options)
    of_any_size, of_one_size = float32_forms(name, json.dumps(options), dim=6)
    for batch, forms in ((12, of_any_size + of_one_size), (8, of_any_size)):
        labels, x = UNEVEN[:batch], rows(rng)[:batch].astype("float32")
        value = float(loss(labels, x.astype("float64"))) if forms else None
        for form in forms:
            found = form(labels, x)
            assert keras.backend.standardize_dtype(found.dtype) == "float32"
            np.testing.assert_allclose(float(found), value, rtol=1e-5)


@some_losses
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_computes_in_float32_or_better(name, options, dtype, rng):
    loss, labels = losses.get(name, **options), UNEVEN
    low = keras.ops.cast(rows(rng), dtype)
    exact = np.asarray(keras.ops.convert_to_numpy(keras.ops.cast(low, "float64")))
    value = loss(labels, low)
    expected = "float64" if dtype == "float64" else "float32"
    assert keras.backend.standardize_dtype(value.dtype) == expected
    np.testing.assert_allclose(float(value), oracles.value(loss, labels, exact), rtol=1e-5)


@every_loss
def test_keeps_its_options_as_plain_numbers_and_is_rebuilt_from_them(name, options, rng):
    loss = losses.get(name, **options)
    config = loss.get_config()
    assert all(config[key] == value for key, value in options.items() if is_plain(value))
    scalars = {
        option: np.asarray(value, "float32" if isinstance(value, float) else "int64")[()]
        for option, value in config.items()
        if type(value) in (int, float) and option != "num_quadruplets"
    }
    of_scalars = losses.get(name, **{**options, **scalars}).get_config()
    assert [*map(type, of_scalars.values())] == [*map(type, config.values())]
    for option in scalars:
        assert of_scalars[option] == pytest.approx(config[option], rel=1e-6)
    restored = keras.losses.deserialize(keras.losses.serialize(loss))
    assert type(restored) is type(loss)
    assert restored.get_config() == config
    if (name, options) in PATHS:
        labels, x = UNEVEN, rows(rng)
        value = float(loss(labels, x))
        assert float(restored(labels, x)) == pytest.approx(value, rel=REPEATED, abs=0)


def is_plain(value):
    return isinstance(value, (bool, int, float, tuple)) or value is None


@slow_on_jax
@each_kind
def test_descending_it_separates_the_classes(name, options, rng):
    labels, x = np.repeat(np.arange(4), 4), rows(rng, batch=16, dim=12).astype("float32")
    evaluate = of_case(name, json.dumps(options), dim=12)
    mean, square = np.zeros_like(x), np.zeros_like(x)
    for step in range(1, 101):  # Adam
        _, gradient = evaluate(labels, x)
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.99 * square + 0.01 * gradient**2
        corrected = np.sqrt(square / (1 - 0.99**step)) + 1e-12
        x = x - np.float32(0.1) * mean / np.float32(1 - 0.9**step) / corrected
    x = oracles.scaled(losses.get(name, **options), x)
    distances = np.linalg.norm(x[:, None] - x[None], axis=2) + 1e9 * np.eye(16)
    assert np.mean(labels[distances.argmin(axis=1)] == labels) > 0.9
