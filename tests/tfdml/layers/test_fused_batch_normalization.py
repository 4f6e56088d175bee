import keras
import numpy as np
import pytest

from tfdml.layers import FusedBatchNormalization

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="other backends have the layer of Keras"
)


def pair(shape, rng, **options):
    """The layer and that of Keras, with the same weights."""
    layers = [
        kind(**options) for kind in (FusedBatchNormalization, keras.layers.BatchNormalization)
    ]
    for layer in layers:
        layer.build(shape)
    weights = [rng.uniform(0.5, 2, weight.shape) for weight in layers[0].weights]
    for layer in layers:
        layer.set_weights(weights)
    return layers


def results(layer, x, training=True):
    """Outputs, gradients of their product with fixed numbers, and weights after the call."""
    import tensorflow as tf

    factors = tf.reshape(tf.range(tf.size(x), dtype=tf.float32) % 7, x.shape)
    with tf.GradientTape() as tape:
        tape.watch(x)
        outputs = layer(x, training=training)
        value = tf.reduce_sum(factors * tf.cast(outputs, tf.float32))
    gradients = tape.gradient(value, [x, *layer.trainable_variables])
    return [np.asarray(tf.cast(each, tf.float32)) for each in (outputs, *gradients, *layer.weights)]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("options", "shape", "tolerance"),
    [
        ({}, (5, 6, 4, 3), 1e-4),
        ({"momentum": 0.9, "epsilon": 0.1, "axis": 3}, (5, 6, 4, 3), 1e-4),
        ({}, (1, 1, 1, 3), 1e-4),
        ({"axis": 1}, (5, 6, 4, 3), 1e-4),
        ({"scale": False}, (5, 6, 4, 3), 1e-4),
        ({"trainable": False}, (5, 6, 4, 3), 1e-4),
        ({"center": False}, (5, 6, 4, 3), 1e-4),
        ({}, (5, 3), 1e-4),
        ({"dtype": "float64"}, (8, 5, 4, 3), 1e-4),
        ({"dtype": "mixed_bfloat16"}, (8, 5, 4, 3), 0.05),
        ({"dtype": "bfloat16"}, (8, 5, 4, 3), 0.05),
        ({"dtype": "mixed_float16"}, (8, 5, 4, 3), 0.01),
    ],
)
def test_equals_keras(options, shape, tolerance, training, rng):
    import tensorflow as tf

    layers = pair(shape, rng, **options)
    x = tf.cast(rng.normal(2, 3, shape), layers[0].compute_dtype)
    own, expected = (results(layer, x, training) for layer in layers)
    for each, other in zip(own, expected, strict=True):
        np.testing.assert_allclose(each, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("policy", "training"), [("float32", True), ("mixed_bfloat16", True), ("mixed_bfloat16", False)]
)
def test_is_one_operation(policy, training):
    import tensorflow as tf

    layer = FusedBatchNormalization(dtype=policy, scale=False)
    layer.build((None, 4, 4, 3))
    call = tf.function(lambda x: layer(x, training=training))
    graph = call.get_concrete_function(tf.zeros([2, 4, 4, 3])).graph
    kinds = {each.type for each in graph.get_operations()}
    assert "FusedBatchNormV3" in kinds
    assert "SquaredDifference" not in kinds
