import keras
import numpy as np
import pytest
from keras import ops

from tfdml import losses


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


def test_rejects_what_is_not_known_of_the_classes(rng):
    labels, x = np.array([0, 0, 1, 1]), rng.normal(size=(4, 3))
    for options in ({}, {"num_classes": 2}, {"correlation": False}):
        received = f"num_classes={options.get('num_classes')}, initial_density=None"
        with pytest.raises(
            ValueError, match=rf"correlation=False.*`prepare`. Received: {received}"
        ):
            losses.get("density", **options)(labels, x)
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
