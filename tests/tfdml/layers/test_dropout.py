import keras
import numpy as np
import pytest
from keras import ops

from tfdml.layers import Dropout


@pytest.fixture
def model():
    return keras.Sequential([keras.Input((50,)), Dropout(0.5, seed=3), Dropout(0.0)])


def drawn(model, times=1):
    ones = np.ones((4, 50), np.float32)
    return [ops.convert_to_numpy(model(ones, training=True)) for _ in range(times)]


def test_a_saved_model_continues_its_draws(model, tmp_path):
    drawn(model, 3)
    model.save(tmp_path / "model.keras")
    first, second = (drawn(keras.models.load_model(tmp_path / "model.keras"), 2) for _ in range(2))
    expected = drawn(model, 2)
    np.testing.assert_array_equal(first, expected)
    np.testing.assert_array_equal(second, expected)
    assert not np.array_equal(expected[0], expected[1])


def test_weights_saved_with_the_layer_of_keras_are_loaded(model, tmp_path):
    before = keras.Sequential(
        [keras.Input((50,)), keras.layers.Dropout(0.5), keras.layers.Dropout(0.0)]
    )
    before.save_weights(tmp_path / "before.weights.h5")
    model.load_weights(tmp_path / "before.weights.h5")
    assert 0 < np.mean(drawn(model)[0] == 0) < 1


def test_a_layer_that_drops_nothing_takes_weights_of_one_that_did(model, tmp_path):
    model.save_weights(tmp_path / "some.weights.h5")
    without = keras.Sequential([keras.Input((50,)), Dropout(0.0), Dropout(0.0)])
    without.load_weights(tmp_path / "some.weights.h5")
    assert drawn(without)[0].all()
