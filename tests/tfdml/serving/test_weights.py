import keras
import numpy as np
import pytest
import tensorflow as tf

from tfdml.models import build_embedder
from tfdml.serving.weights import StoredWeights, scaled


def by_channel(numbers, axis):
    """Each channel rounded alone, in a loop."""
    rounded = np.zeros_like(numbers)
    for channel in range(numbers.shape[axis]):
        where = tuple(channel if i == axis else slice(None) for i in range(numbers.ndim))
        step = np.abs(numbers[where]).max() / 127
        rounded[where] = np.round(numbers[where] / step) * step if step else 0
    return rounded


@pytest.mark.parametrize(
    ("shape", "axis"), [((5, 7), 1), ((3, 3, 4, 6), 3), ((3, 3, 4, 1), 2), ((6, 1), 0), ((1, 1), 0)]
)
def test_each_channel_has_its_own_scale(shape, axis, rng):
    sizes = rng.uniform(0.01, 100, shape[axis])
    numbers = np.moveaxis(np.moveaxis(rng.normal(size=shape), axis, -1) * sizes, -1, axis)
    numbers = numbers.astype("float32")
    integers, scales = scaled(numbers, "int8")
    assert integers.dtype == np.int8
    assert scales.size == shape[axis]
    assert np.abs(integers.astype(int)).max() == 127
    np.testing.assert_allclose(integers * scales, by_channel(numbers, axis), rtol=1e-5, atol=1e-6)
    assert (np.abs(integers * scales - numbers) <= scales / 2 * 1.001).all()


def test_a_channel_of_zeros_stays_so():
    integers, scales = scaled(np.array([[0.0, 3.0], [0.0, -1.0]]), "int8")
    assert integers.tolist() == [[0, 127], [0, -42]]
    assert np.isfinite(scales).all()


def small(**options):
    return build_embedder("small_cnn", 8, input_shape=(8, 8, 3), **options)


@pytest.mark.parametrize("precision", ["int8", "float16"])
def test_layers_compute_with_the_rounded_kernels_and_keep_their_own(precision, rng):
    embedder, images = small(), rng.uniform(0, 255, (4, 8, 8, 3)).astype("float32")
    before, exact = embedder.get_weights(), np.asarray(embedder(images, training=False))
    weights = StoredWeights([embedder], precision)

    @tf.function(autograph=False)
    def compute(rows):
        with weights.in_place():
            return embedder(rows, training=False)

    found = compute(tf.constant(images)).numpy()
    for kept, now in zip(before, embedder.get_weights(), strict=True):
        np.testing.assert_array_equal(kept, now)
    rounded = small()
    for variable, numbers in zip(rounded.variables, before, strict=True):
        if numbers.ndim >= 2:
            integers, scales = scaled(numbers, precision)
            numbers = integers * scales
        variable.assign(numbers)
    np.testing.assert_allclose(found, rounded(images, training=False), atol=1e-5)
    assert np.abs(found - exact).max() > 1e-5


def test_float16_keeps_small_and_large_channels():
    layer = keras.layers.Dense(2)
    layer.build((None, 2))
    layer.kernel.assign([[1e5, 1e-9], [0.0, 3e-9]])
    weights = StoredWeights([layer], "float16")
    with weights.in_place():
        np.testing.assert_allclose(layer(np.eye(2)), [[1e5, 1e-9], [0.0, 3e-9]], rtol=1e-3)


def test_a_layer_given_twice_is_written_once():
    embedder = small()
    assert len(StoredWeights([embedder, *embedder.layers], "float32").stored) == len(
        embedder.variables
    )
