import re

import caffe_oracle
import keras
import numpy as np
import pytest
from keras import ops

from tfdml.models import build_embedder
from tfdml.models.caffe import max_pool
from tfdml.models.googlenet import googlenet, load_arrays

pytestmark = pytest.mark.usefixtures("freed")


def model_of(side, channels=3, **options):
    images = keras.Input((side, side, channels))
    return keras.Model(images, googlenet(images, **options))


def arrays_of(model):
    """What a file of the model's weights holds."""
    arrays = {}
    for layer in model.layers:
        if hasattr(layer, "kernel"):
            name = re.sub("^(loss.)_", r"\1__", layer.name)
            arrays[f"{name}/kernel"] = ops.convert_to_numpy(layer.kernel)
            arrays[f"{name}/bias"] = ops.convert_to_numpy(layer.bias)
    return arrays


@pytest.fixture(scope="module")
def network():
    keras.utils.set_random_seed(0)
    return model_of(224, levels=3)


@pytest.fixture(scope="module")
def arrays(network):
    """Random weights and biases, with exits."""
    rng = np.random.default_rng(0)
    return {
        name: rng.uniform(-0.1, 0.1, array.shape).astype("float32") if "bias" in name else array
        for name, array in arrays_of(network).items()
    }


@pytest.fixture(scope="module")
def path(arrays, tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "googlenet.npz"
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("sides", [(3, 3), (4, 4), (7, 8), (8, 7), (2, 3), (13, 13), (3, 2)])
def test_max_pooling_reaches_over_the_border_as_in_caffe(size, sides, rng):
    maps = -rng.uniform(1, 2, (2, *sides, 3)).astype("float32")
    images = keras.Input((*sides, 3))
    pooled = keras.Model(images, max_pool(images, size, "pool"))(maps)
    expected = caffe_oracle.max_pool(maps.transpose(0, 3, 1, 2), size, 2)
    np.testing.assert_array_equal(
        ops.convert_to_numpy(pooled).transpose(0, 3, 1, 2), expected, strict=True
    )


def test_exits_that_the_file_does_not_hold_stay_random(arrays, tmp_path):
    held = {name: array for name, array in arrays.items() if not name.startswith("loss2")}
    np.savez(tmp_path / "held.npz", **held, loss3__classifier=np.zeros(3))
    with pytest.raises(ValueError, match=r"differ=\['loss3__classifier'\]$"):
        model_of(224, weights=tmp_path / "held.npz")
    classifier = {"loss3__classifier/kernel": np.zeros((1024, 1000), "float32")}
    np.savez(tmp_path / "held.npz", **held, **classifier)
    loaded = arrays_of(model_of(224, weights=tmp_path / "held.npz", levels=3))
    for name, array in arrays.items():
        assert (loaded[name] == array).all() == (not name.startswith("loss2")), name


def test_an_exit_whose_maps_do_not_fit_has_its_convolution_loaded_alone(arrays, path):
    loaded = arrays_of(model_of(96, weights=path, levels=2))
    np.testing.assert_array_equal(loaded["loss2__conv/kernel"], arrays["loss2__conv/kernel"])
    assert loaded["loss2__fc/kernel"].shape != arrays["loss2__fc/kernel"].shape


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("conv2__3x3/bias", None),
        ("loss1__fc/bias", None),
        ("conv9/bias", np.zeros(3)),
        ("conv2__3x3/bias", np.zeros(3)),
        ("conv2__3x3/bias", np.full(192, np.nan, "float32")),
        ("conv2__3x3/bias", np.zeros(192, "int32")),
    ],
)
def test_rejects_weights_that_do_not_fit(name, array, arrays, network):
    changed = {k: v for k, v in {**arrays, name: array}.items() if v is not None}
    with pytest.raises(ValueError, match=rf"weights='changed.npz', differ=\['{name}'\]$"):
        load_arrays(network, changed, "changed.npz")


def test_rejects_another_network_and_names_the_first_of_many_weights_that_are_missing(tmp_path):
    path = tmp_path / "weights.npz"
    for arrays, message in (
        ({}, r"weights.npz', differ=\['conv1__7x7_s2/kernel', .*, '109 more'\]$"),
        ({"variant": "keras"}, "`variant`.*Received: variant='keras'"),
    ):
        np.savez(path, **arrays)
        with pytest.raises(ValueError, match=message):
            model_of(64, weights=path)


def test_rejects_what_is_no_file_of_weights(path, tmp_path):
    wrong, array = tmp_path / "wrong.npz", tmp_path / "array.npy"
    np.savez(wrong, **{"conv1__7x7_s2/kernel": np.array([None])})  # an object
    np.save(array, np.zeros(3))
    cut_off = path.read_bytes()[:-1000]
    for content in (wrong.read_bytes(), array.read_bytes(), cut_off, b"no weights"):
        wrong.write_bytes(content)
        with pytest.raises(ValueError, match=r"`weights`.*Received: .*wrong.npz'$"):
            model_of(64, weights=wrong)


def test_says_where_imagenet_weights_are():
    with pytest.raises(FileNotFoundError, match=r"python tools/convert_googlenet\.py makes it"):
        build_embedder("googlenet", input_shape=(64, 64, 3), weights="imagenet")
    with pytest.raises(FileNotFoundError, match=r"convert_googlenet\.py.* weights='missing\.npz'"):
        build_embedder("googlenet", input_shape=(64, 64, 3), weights="missing.npz")


def test_rejects_images_that_are_too_small():
    with pytest.raises(ValueError, match=r"31 × 31 pixels or more. Received: size=\(30, 30\)"):
        model_of(30)
