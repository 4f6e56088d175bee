import keras
import numpy as np
import pytest
from keras import ops

from tfdml.layers import GroupedConv2D


def test_convolves_each_group_with_its_filters(rng):
    x = rng.normal(size=(2, 6, 5, 6)).astype("float32")
    layer = GroupedConv2D(9, 3, strides=2, padding="same", groups=3, activation="relu")
    layer.build(x.shape)
    kernel, bias = rng.normal(size=(3, 3, 2, 9)), rng.normal(size=9)
    layer.set_weights([kernel, bias])
    expected = []
    for group in range(3):
        single = keras.layers.Conv2D(3, 3, strides=2, padding="same", activation="relu")
        columns = slice(3 * group, 3 * group + 3)
        part = x[..., 2 * group : 2 * group + 2]
        single.build(part.shape)
        single.set_weights([kernel[..., columns], bias[columns]])
        expected.append(ops.convert_to_numpy(single(part)))
    np.testing.assert_allclose(
        ops.convert_to_numpy(layer(x)), np.concatenate(expected, axis=-1), rtol=1e-5, atol=1e-5
    )


@pytest.mark.skipif(
    keras.backend.backend() == "tensorflow", reason="TensorFlow has no such convolution on a CPU"
)
def test_channels_may_come_first(rng):
    x = rng.normal(size=(2, 4, 5, 6)).astype("float32")
    last, first = (
        GroupedConv2D(6, 1, groups=2, data_format=f"channels_{place}")
        for place in ("last", "first")
    )
    expected = ops.transpose(last(x), (0, 3, 1, 2))
    first.build((2, 6, 4, 5))
    first.set_weights(last.get_weights())
    values = first(np.transpose(x, (0, 3, 1, 2)))
    np.testing.assert_allclose(*map(ops.convert_to_numpy, (values, expected)), rtol=1e-5, atol=1e-5)
