import keras
import numpy as np

from tfdml.layers import UnitLength


def test_every_row_of_the_last_axis_is_scaled(rng):
    rows = rng.normal(size=(2, 3, 4)).astype("float32")
    expected = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(UnitLength()(rows)), expected, atol=1e-6)


def test_unit_length_survives_saving(rng, tmp_path):
    model = keras.Sequential([keras.Input((4,)), UnitLength()])
    rows = rng.normal(size=(3, 4)).astype("float32")
    expected = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    model.save(tmp_path / "model.keras")
    restored = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(keras.ops.convert_to_numpy(restored(rows)), expected, atol=1e-6)
