"""Weights of rows, for the losses whose terms are rows: those over proxies of classes."""

import re

import keras
import numpy as np
import pytest
from cases import INITIALIZER

from tfdml import losses

LABELS = np.array([0, 1, 2, 3, 0, 1])
WEIGHTS = np.array([2.0, 0.0, 0.5, 1.0, 3.0, 0.0], "float32")
PROXIES = {"num_classes": 4, "initializer": INITIALIZER}
OF_ROWS = {
    **dict.fromkeys(("norm_softmax", "cosface", "arcface", "sub_center_arcface"), PROXIES),
    **dict.fromkeys(("proxy_nca", "soft_triple"), PROXIES),
    "sampled_classes": {"base": {"name": "arcface", **PROXIES}},
    "matryoshka": {"base": {"name": "cosface", **PROXIES}, "dims": (6, 3)},
    "weighted_sum": {"parts": {"arcface": (2.0, PROXIES), "proxy_nca": (0.5, PROXIES)}},
}


def of_each_row(loss, x):
    return np.array([float(loss(LABELS[i : i + 1], x[i : i + 1])) for i in range(len(x))])


@pytest.mark.parametrize("name", OF_ROWS)
def test_the_value_is_the_weighted_sum_of_the_rows_over_the_batch(name, rng):
    loss, x = losses.get(name, **OF_ROWS[name]), rng.normal(size=(6, 6)).astype("float32")
    spread = 0.0  # of centers, which no row has
    if name == "soft_triple":
        spread = float(loss(LABELS, x, sample_weight=0 * WEIGHTS, training=False))
        assert spread > 0
    rows = of_each_row(loss, x) - spread
    np.testing.assert_allclose(float(loss(LABELS, x)) - spread, rows.mean(), rtol=1e-4)
    for weights in (WEIGHTS, WEIGHTS[:, None], WEIGHTS.astype("float64").tolist()):
        value = float(loss(LABELS, x, sample_weight=weights, training=False))
        np.testing.assert_allclose(value - spread, (WEIGHTS * rows).mean(), rtol=1e-4)


def test_terms_that_are_not_rows_take_no_weights(rng):
    x = rng.normal(size=(6, 6)).astype("float32")
    for name, options in {
        "proxy_anchor": PROXIES,
        "regularized": {"base": "triplet", "regularizer": "gor"},
        "pddm": {},
        "weighted_sum": {"parts": {"arcface": (2.0, PROXIES), "triplet": 1.0}},
    }.items():
        loss = losses.get(name, **options)
        with pytest.raises(ValueError, match=r"does not support `sample_weight`.*not rows"):
            loss(LABELS, x, sample_weight=WEIGHTS, training=True)


def test_a_number_is_the_factor_of_any_loss(rng):
    x = rng.normal(size=(6, 6)).astype("float32")
    for loss in (losses.get("triplet"), losses.get("arcface", **PROXIES)):
        value = float(loss(LABELS, x))
        np.testing.assert_allclose(float(loss(LABELS, x, sample_weight=3)), 3 * value, rtol=1e-6)
        assert float(loss(LABELS, x, 1.0)) == value


def test_weights_of_another_shape_are_rejected(rng):
    loss, x = losses.get("arcface", **PROXIES), rng.normal(size=(6, 6)).astype("float32")
    for weights in (WEIGHTS[:3], np.ones((6, 2))):
        shape = re.escape(f"sample_weight.shape={weights.shape}")
        with pytest.raises(ValueError, match=f"`sample_weight` must be .*{shape}"):
            loss(LABELS, x, sample_weight=weights, training=True)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_a_plain_model_would_not_train_the_proxies(weights, rng):
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(6)])
    model.compile(loss=losses.get("arcface", **PROXIES))
    x = rng.normal(size=(6, 6)).astype("float32")
    with pytest.raises(ValueError, match=r"ArcFaceLoss has a layer.*EmbeddingModel"):
        model.fit(x, LABELS, sample_weight=weights, verbose=0)
