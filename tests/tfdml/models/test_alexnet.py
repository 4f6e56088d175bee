import caffe_oracle
import keras
import numpy as np
import pytest
from keras import ops

from tfdml.models import alexnet as module
from tfdml.models.alexnet import alexnet


@pytest.fixture
def narrow(monkeypatch):
    """Networks with an eighth of the units, which are most of the memory."""
    monkeypatch.setattr(module, "UNITS", 512)


def model_of(side, channels=3, **options):
    images = keras.Input((side, side, channels))
    return keras.Model(images, alexnet(images, **options)[0])


@pytest.mark.parametrize(
    ("side", "units"), [pytest.param(227, 4096, marks=pytest.mark.slow), (64, 512)]
)
def test_equals_caffe(side, units, rng, monkeypatch):
    monkeypatch.setattr(module, "UNITS", units)
    keras.utils.set_random_seed(0)
    model = model_of(side)
    maps_side = model.get_layer("pool5").output.shape[1]
    layers = {}
    for layer in model.layers:
        if hasattr(layer, "kernel"):
            bias = rng.uniform(-1, 1, layer.bias.shape).astype("float32")
            layer.bias.assign(bias)
            kernel = ops.convert_to_numpy(layer.kernel)
            if layer.name == "fc6":
                kernel = kernel.reshape(maps_side, maps_side, 256, -1).transpose(2, 0, 1, 3)
                kernel = kernel.reshape(-1, kernel.shape[-1])
            is_map = kernel.ndim == 4
            layers[layer.name] = [kernel.transpose(3, 2, 0, 1) if is_map else kernel.T, bias]
    images = rng.uniform(0, 255, (2, side, side, 3)).astype("float32")
    expected = caffe_oracle.caffenet(images, layers)
    features = ops.convert_to_numpy(model(images))
    assert features.shape == (2, units)
    np.testing.assert_allclose(features, expected, atol=1e-4 * expected.max())


def test_drops_a_half_in_training_alone(rng, narrow):
    model = model_of(64)
    images = rng.uniform(0, 255, (2, 64, 64, 3)).astype("float32")
    rates = [layer.rate for layer in model.layers if isinstance(layer, keras.layers.Dropout)]
    assert rates == [0.5, 0.5]
    still, again = (ops.convert_to_numpy(model(images)) for _ in range(2))
    np.testing.assert_array_equal(still, again)
    trained = ops.convert_to_numpy(model(images, training=True))
    assert (trained[still > 0] == 0).mean() > 0.4


def test_rejects_weights_that_do_not_fit(tmp_path, narrow):
    path = tmp_path / "weights.npz"
    np.savez(path, **{"conv1/kernel": np.zeros((11, 11, 3, 96)), "fc8/bias": np.zeros(1000)})
    message = r"weights.npz', missing=\['conv1/bias', .*, '8 more'\]$"
    with pytest.raises(ValueError, match=message):
        model_of(227, weights=path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"side": 38}, r"39 × 39 pixels or more. Received: size=\(38, 38\)"),
        ({"weights": "x.npz"}, r"need images of 227 × 227 pixels. Received: size=\(64, 64\)"),
        (
            {"weights": "imagenet", "channels": 1},
            "weights require images of 3 channels. Received: weights='imagenet', channels=1",
        ),
    ],
)
def test_rejects_wrong_arguments(options, message, narrow):
    with pytest.raises(ValueError, match=message):
        model_of(**{"side": 64, **options})
