"""Several labels a row: softmax losses weigh each positive pair by the overlap of the labels."""

import keras
import numpy as np
import pytest
from backend import value_and_gradient
from keras import ops

from tfdml import losses

NAMES = ["supcon", "sincere", "ntxent"]
each = pytest.mark.parametrize("name", NAMES)
SETS = np.eye(4, dtype=int)[[0, 0, 1, 1, 2, 2, 3, 3]] | np.eye(4, dtype=int)[0]
IDS = np.array([0, 0, 0, 1, 1, 2, 2, 3])


@each
def test_one_label_a_row_has_the_value_of_ids_exactly(name, rng):
    x = rng.normal(size=(8, 5)).astype("float32")
    one_hot = np.eye(4, dtype=int)[IDS]
    loss = losses.get(name)
    of_ids, gradient_of_ids = value_and_gradient(loss, IDS, x)
    of_sets, gradient_of_sets = value_and_gradient(loss, one_hot, x)
    assert of_sets == of_ids
    np.testing.assert_array_equal(gradient_of_sets, gradient_of_ids)


@each
@pytest.mark.parametrize(
    "sets",
    [np.zeros((8, 3), int), np.ones((8, 3), int), np.eye(8, dtype=int), np.array([[1, 0]])],
    ids=["no labels", "all labels", "all different", "one row"],
)
def test_degenerate_sets_stay_finite(name, sets, rng):
    x = rng.normal(size=(len(sets), 5)).astype("float32")
    for rows in (x, 0 * x, np.broadcast_to(x[:1], x.shape)):
        value, gradient = value_and_gradient(losses.get(name), sets, rows)
        assert value >= 0
        assert np.isfinite(value)
        assert np.isfinite(gradient).all()
        if not (sets.sum(axis=0) > 1).any():
            assert value == 0


def test_numbers_other_than_0_and_1_are_rejected(rng):
    loss, x = losses.get("supcon"), rng.normal(size=(8, 5))
    for wrong in (SETS + 1, SETS - 1):
        with pytest.raises(ValueError, match=r"must be 0 or 1\. Received: labels=(1 to 2|-1 to 0)"):
            loss(wrong, x)
        tensors = ops.convert_to_tensor(wrong), ops.convert_to_tensor(x)
        if keras.backend.backend() != "tensorflow":
            assert np.isnan(float(loss(*tensors)))
            continue
        from tensorflow.errors import InvalidArgumentError

        with pytest.raises(InvalidArgumentError, match="must be 0 or 1"):
            loss(*tensors)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("triplet", {}),
        ("recall_at_k", {}),
        ("arcface", {"num_classes": 4}),
        ("memory", {"base": "supcon", "size": 8}),
        ("regularized", {"base": "supcon", "regularizer": "gor"}),
    ],
)
def test_other_losses_reject_several_labels_a_row(name, options, rng):
    loss = losses.get(name, **options)
    with pytest.raises(ValueError, match=r"\(batch, 1\); .*Received: labels.shape=\(8, 4\)"):
        loss(SETS, rng.normal(size=(8, 5)))


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="trains by TensorFlow")
def test_a_model_learns_from_several_labels(rng, recwarn):
    import tfdml

    keras.utils.set_random_seed(0)
    sets = rng.integers(0, 2, (64, 6))
    images = (sets @ rng.normal(size=(6, 10)) + 0.1 * rng.normal(size=(64, 10))).astype("float32")
    model = tfdml.EmbeddingModel(keras.Sequential([keras.Input((10,)), keras.layers.Dense(8)]))
    model.compile("adam", "supcon")
    history = model.fit(images, sets, epochs=8, batch_size=16, verbose=0).history["loss"]
    assert history[-1] < 0.9 * history[0]
    by_hand = float(model.loss(sets, model.embed(images)))
    assert model.evaluate(images, sets, batch_size=64, verbose=0) == pytest.approx(by_hand, 1e-5)
    assert not [w for w in recwarn if "no two images" in str(w.message)]
    with pytest.warns(UserWarning, match="no two images of one class"):
        model.fit(images[:4], np.eye(4, dtype=int), verbose=0)


def test_a_tiny_temperature_keeps_the_gradient_of_softmax_losses(rng):
    x = rng.normal(size=(8, 4)).astype("float32")
    for name in NAMES:
        value, gradient = value_and_gradient(losses.get(name, temperature=1e-3), IDS, x)
        assert np.isfinite(value)
        assert np.isfinite(gradient).all()
        assert np.abs(gradient).max() > 1
