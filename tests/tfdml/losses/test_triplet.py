"""Semi-hard triplets of large classes, which are not searched one positive after another."""

import keras
import numpy as np
import oracles
import pytest
from backend import DOUBLE, value_and_gradient

from tfdml import losses
from tfdml.losses import triplet

LABELS = {
    "two classes": np.arange(24) % 2,
    "one class": np.zeros(24, "int64"),
    "a class and single rows": np.maximum(np.arange(24) - 18, 0),
}


@pytest.mark.parametrize("classes", LABELS)
@pytest.mark.parametrize("rows", ["distinct", "equal in pairs", "on a grid"])
def test_sorting_finds_the_triplets_of_taking_one_after_another(classes, rows, rng, monkeypatch):
    x, labels = rng.normal(size=(24, 4)), LABELS[classes]
    if rows == "equal in pairs":
        x[1::2] = x[::2]
    if rows == "on a grid":
        x = np.round(x)
    options = {"mining": "semihard", "margin": 0.5, "average_over": "active"}
    loss, found = losses.get("triplet", normalize=False, **options), {}
    for many in (0, 24):
        monkeypatch.setattr(triplet, "_MANY", many)
        found[many] = value_and_gradient(loss, labels, x)
    np.testing.assert_allclose(found[0][0], found[24][0], rtol=DOUBLE)
    np.testing.assert_allclose(found[0][1], found[24][1], atol=DOUBLE)
    if rows == "distinct":
        np.testing.assert_allclose(found[0][0], oracles.value(loss, labels, x), rtol=DOUBLE)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="JAX traces both ways")
def test_large_classes_are_sorted_also_by_xla(rng, monkeypatch):
    import tensorflow as tf

    x, labels = tf.constant(rng.normal(size=(40, 4)), "float32"), np.arange(40) % 2
    loss = losses.get("triplet", mining="semihard")
    compiled = tf.function(lambda rows: loss(labels, rows), jit_compile=True, autograph=False)
    value = float(compiled(x))
    monkeypatch.setattr(triplet.TripletLoss, "_count_one_by_one", pytest.fail)
    np.testing.assert_allclose(value, loss(labels, x), rtol=1e-5)
