import keras
import numpy as np
import oracles
import pytest
from backend import value_and_gradient
from keras import ops

from tfdml import losses
from tfdml.layers import DensityTargets


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="reads the gradient of a variable"
)
def test_targets_of_absent_and_single_classes_have_no_gradient(rng):
    import tensorflow as tf

    regularizer = losses.get_regularizer("density", initial_density=[0.3] * 6)
    with tf.GradientTape() as tape:
        value = regularizer(np.array([4, 1, 1, 4, 2, 1]), rng.normal(size=(6, 3)))
    gradient = tape.gradient(value, regularizer.layer.targets.value)
    assert (np.flatnonzero(tf.convert_to_tensor(gradient)) == [1, 4]).all()


def test_rows_alone_in_their_class_count_nothing(rng):
    regularizer = losses.get_regularizer("density", initial_density=[0.2] * 9)
    x = rng.random((7, 3))
    pairs = float(regularizer(np.array([0, 0, 1, 1, 1]), x[:5]))
    assert float(regularizer(np.array([0, 0, 1, 1, 1, 7, 8]), x)) == pytest.approx(pairs, rel=1e-6)


@pytest.mark.parametrize("eta", [0.0, 0.5, 1.0])
def test_the_correlation_is_zero_only_for_targets_in_proportion(eta, rng):
    density, labels = rng.uniform(0.1, 0.9, 4), np.repeat(np.arange(4), 3)
    x = rng.normal(size=(12, 5))
    values = []
    for correlation in (True, False):
        regularizer = losses.get_regularizer(
            "density", initial_density=density, eta=eta, correlation=correlation
        )
        regularizer.layer = DensityTargets(4, dtype="float64")
        regularizer.layer.build()
        for targets in (1.7 * density**eta, 1.7 * density**eta + [0, 0, 0, 0.1]):
            regularizer.layer.targets.assign(targets)
            values.append(float(regularizer(labels, x)))
    proportional, other, alone, other_alone = values
    assert proportional == pytest.approx(alone, abs=1e-12)
    assert other > other_alone + 1e-4


def test_at_its_best_targets_it_rewards_density_linearly(rng):
    labels, x = np.repeat(np.arange(3), 4), oracles.unit(rng.normal(size=(12, 5)))
    regularizer = losses.get_regularizer("density", num_classes=3, correlation=False)
    regularizer.layer = DensityTargets(3, dtype="float64")
    regularizer.layer.build()
    means = x.reshape(3, 4, 5).mean(axis=1).repeat(4, axis=0)
    densities = np.square(x - means).sum(axis=1).reshape(3, 4).mean(axis=1)
    regularizer.layer.targets.assign(densities + 0.5)
    value, gradient = value_and_gradient(regularizer, labels, x)
    assert value == pytest.approx(-densities.mean() - 0.25)
    raw = -2 / 12 * (x - means)  # of - mean of D, before the rows are held to unit length
    tangent = raw - np.sum(raw * x, axis=1, keepdims=True) * x
    np.testing.assert_allclose(gradient, tangent, atol=1e-12)


def test_rejects_what_is_not_known_of_the_classes(rng):
    labels, x = np.array([0, 0, 1, 1]), rng.normal(size=(4, 3))
    with pytest.raises(ValueError, match=r"`initial_density`.*Received: num_classes=None"):
        losses.get("density")(labels, x)
    with pytest.raises(
        ValueError, match=r"`initial_density`.*correlation=False.*Received: initial_density=None"
    ):
        losses.get("density", num_classes=2)(labels, x)
    loss = losses.get("density", initial_density=[0.1, 0.2])
    with pytest.raises(ValueError, match=r"`labels`.*Received: labels=0 to 2$"):
        loss(np.array([0, 0, 2, 2]), x)
    with pytest.raises(ValueError, match=r"labels=-1 to 0$"):
        loss(np.array([0, 0, -1, -1]), x)
    with pytest.raises(ValueError, match=r"images of every class.*Received: classes=2, largest=2"):
        losses.get("density").prepare(np.array([0, 2]), features=lambda: x[:2])
    with pytest.raises(ValueError, match=r"`labels` must be >= 0. Received: labels=-1"):
        losses.get("density").prepare(np.array([0, -1]), features=lambda: x[:2])
    for unknown in (2, -1, 2**31 - 1):
        tensor = ops.convert_to_tensor(np.array([0, 0, unknown, unknown], "int32"))
        if keras.backend.backend() != "tensorflow":
            assert np.isnan(float(loss(tensor, x)))
            continue
        with pytest.raises(Exception, match=r"(?s)labels must be from 0 to 1\. Received:"):
            loss(tensor, x)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "uint32", "int64"])
def test_labels_may_be_tensors_of_any_integers(dtype, rng):
    loss, x = losses.get("density", initial_density=[0.1, 0.2, 0.3]), rng.normal(size=(4, 3))
    labels = np.array([0, 0, 2, 2], dtype)
    assert float(loss(ops.convert_to_tensor(labels), x)) == float(loss(labels, x))


def test_a_density_inside_a_regularized_loss_finds_its_classes(rng):
    base = {"name": "density", "base": "triplet", "initial_density": [0.1, 0.2, 0.3, 0.4, 0.5]}
    loss = losses.get("regularized", base=base, regularizer="gor")
    loss.base.layer.build()
    loss.base.layer.targets.assign([0.0, 0.0, 0.0, 0.5, 1.0])
    labels, x = np.array([3, 3, 4, 4], "int32"), rng.normal(size=(4, 3))
    assert float(loss(labels, x)) == float(loss(ops.convert_to_tensor(labels), x))
    with pytest.raises(ValueError, match=r"`labels`.*Received: labels=4 to 5$"):
        loss(labels + 1, x)


def test_rejects_a_second_density():
    base = {"name": "density", "initial_density": [0.1, 0.2]}
    for name, options in (
        ("density", {"initial_density": [0.1, 0.2]}),
        ("regularized", {"regularizer": {"name": "density", "num_classes": 2}}),
    ):
        with pytest.raises(ValueError, match=r"`base` and `regularizer`.*Received: layers="):
            losses.get(name, base=base, **options)


def test_targets_stay_float32_under_mixed_precision(rng):
    keras.config.set_dtype_policy("mixed_float16")
    try:
        layer = losses.get_regularizer("density", num_classes=2).layer
    finally:
        keras.config.set_dtype_policy("float32")
    layer.build()
    layer.targets.assign([0.5037, 0.5038])
    found = layer(np.array([0, 1]))
    assert keras.backend.standardize_dtype(found.dtype) == "float32"
    np.testing.assert_allclose(ops.convert_to_numpy(found), [0.5037, 0.5038], rtol=1e-6)


def test_a_base_may_learn_too(rng):
    loss = losses.get(
        "density",
        base={"name": "pddm", "similarity": {"units": 4, "dropout": 0.5}},
        initial_density=[0.2, 0.3],
    )
    labels, x = np.array([0, 0, 1, 1]), rng.normal(size=(4, 6)).astype("float32")
    for training in (True, False):  # the dropout of the base draws anew each time
        values = {float(loss(labels, x, training=training)) for _ in range(3)}
        assert np.isfinite(list(values)).all()
        assert (len(values) > 1) == training
    assert loss.layers == [loss.base.layer, loss.layer]
    assert loss.traits.learns_similarity
    assert loss.similarity_layer is loss.base.layer
    scores = [part.similarity(x, x[::-1].copy()) for part in (loss, loss.base)]
    np.testing.assert_array_equal(*map(ops.convert_to_numpy, scores))
    assert not losses.get("density").traits.learns_similarity


def test_the_layer_of_two_losses_is_that_of_the_regularizer_or_of_the_base():
    base = {"name": "pddm", "similarity": {"units": 4}}
    of_base = losses.RegularizedLoss(base=base, regularizer="gor")
    assert of_base.layer is of_base.base.layer is not None
    both = losses.get("density", base=base, num_classes=2)
    assert both.layer is both.regularizer.layer
    assert both.layers == [both.base.layer, both.regularizer.layer]
    assert losses.get("regularized", base="triplet", regularizer="gor").layer is None
