"""Losses that do something else in training, where `test_contract.py` calls them outside it."""

import functools

import keras
import numpy as np
import pytest
from backend import compiled

from tfdml import losses

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="takes gradients by tf.GradientTape"
)
ALL_PAIRS = {"name": "contrastive", "average_over": "pairs"}  # those of distance 0 too
LOSSES = {
    "memory": {"base": ALL_PAIRS, "size": 16, "start_step": 0},
    "memory of softmax": {"base": "supcon", "size": 16, "start_step": 0},
    "sampled_classes": {"base": {"name": "arcface", "num_classes": 9}, "rate": 0.7},
    "recall_at_k": {"mix": 2},
}
BATCHES = {
    "pairs": [0, 0, 1, 1, 2, 2],
    "one class": [3, 3, 3, 3, 3, 3],
    "single": [0, 1, 2, 3, 4, 5],
}
ROWS = {
    "random": lambda rng: rng.normal(size=(6, 4)),
    "equal": lambda rng: np.ones((6, 4)),
    "zero": lambda rng: np.zeros((6, 4)),
    "huge": lambda rng: 1e4 * rng.normal(size=(6, 4)),
}


def build(name):
    keras.utils.set_random_seed(0)
    loss = losses.get(name.partition(" ")[0], **LOSSES[name])
    loss(np.array(BATCHES["pairs"]), np.ones((6, 4), "float32"), training=True)  # builds its layers
    return loss


@pytest.mark.parametrize("name", LOSSES)
def test_values_and_gradients_are_finite(name, rng):
    loss = build(name)
    evaluate = compiled(functools.partial(loss, training=True), 4)
    kinds = [*(("pairs", rows) for rows in ROWS), ("one class", "random"), ("single", "random")]
    for batch, rows in kinds:
        x = ROWS[rows](rng).astype("float32")
        for _ in range(2):  # at the second step a memory holds the first
            value, gradient = evaluate(np.array(BATCHES[batch]), x)
            assert np.isfinite(value), (batch, rows)
            assert np.isfinite(gradient).all(), (batch, rows)


@pytest.mark.parametrize("name", LOSSES)
def test_xla_compiles_them_and_computes_the_same_without_draws(name, rng):
    import tensorflow as tf

    labels, values = np.array(BATCHES["pairs"]), []
    x = tf.constant(rng.normal(size=(6, 4)), "float32")
    for xla in (False, True):
        step = functools.partial(build(name), training=True)
        if xla:
            step = tf.function(step, autograph=False, jit_compile=True)
        values.append([float(step(labels, x)) for _ in range(2)])
    assert np.isfinite(values).all()
    if name.startswith("memory"):  # XLA draws other numbers
        np.testing.assert_allclose(values[1], values[0], rtol=1e-4)
