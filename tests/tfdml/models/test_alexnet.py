"""AlexNet; `tests/tools/test_converters.py` compares its features with those of Caffe."""

import keras
import numpy as np
import pytest
from keras import ops

from tfdml.models import alexnet as module
from tfdml.models.alexnet import alexnet


@pytest.fixture(autouse=True)
def _narrow(monkeypatch):
    """Networks with an eighth of the units, which are most of the memory."""
    monkeypatch.setattr(module, "UNITS", 512)


def model_of(side, channels=3, **options):
    images = keras.Input((side, side, channels))
    return keras.Model(images, alexnet(images, **options)[0])


def test_drops_a_half_in_training_alone(rng):
    model = model_of(64)
    images = rng.uniform(0, 255, (2, 64, 64, 3)).astype("float32")
    rates = [layer.rate for layer in model.layers if isinstance(layer, keras.layers.Dropout)]
    assert rates == [0.5, 0.5]
    still, again = (ops.convert_to_numpy(model(images)) for _ in range(2))
    np.testing.assert_array_equal(still, again)
    trained = ops.convert_to_numpy(model(images, training=True))
    assert (trained[still > 0] == 0).mean() > 0.4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"side": 38}, r"39 × 39 pixels or more. Received: size=\(38, 38\)"),
        ({"weights": "x.npz"}, r"need images of 227 × 227 pixels. Received: size=\(64, 64\)"),
    ],
)
def test_rejects_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        model_of(**{"side": 64, **options})
