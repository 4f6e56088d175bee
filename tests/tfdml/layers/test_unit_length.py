import keras
import numpy as np

from tfdml.layers import UnitLength


def test_every_row_of_the_last_axis_is_scaled(rng):
    rows = rng.normal(size=(2, 3, 4)).astype("float32")
    expected = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(UnitLength()(rows)), expected, atol=1e-6)
