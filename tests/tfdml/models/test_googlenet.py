import re

import caffe_oracle
import keras
import numpy as np
import pytest
from keras import ops

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


def caffe_layers(arrays):
    """{layer: [kernel, bias]} in Caffe's order of axes, of the arrays of a file."""
    layers = {}
    for name in {name.rpartition("/")[0] for name in arrays}:
        kernel, bias = arrays[f"{name}/kernel"], arrays[f"{name}/bias"]
        if kernel.ndim == 4:
            kernel = kernel.transpose(3, 2, 0, 1)
        elif name.endswith("fc"):
            kernel = kernel.reshape(4, 4, 128, -1).transpose(3, 2, 0, 1).reshape(-1, 2048)
        layers[name.replace("__", "/")] = [kernel, bias]
    return layers


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


@pytest.mark.parametrize("side", [63, pytest.param(64, marks=pytest.mark.slow)])
def test_equals_caffe_layer_by_layer(side, arrays, path, rng):
    """Every layer, of what the layer before it gave."""
    images = rng.uniform(0, 255, (2, side, side, 3)).astype("float32")
    model = model_of(side, weights=path)
    inner = keras.Model(
        model.input, {layer.name: layer.output for layer in model.layers if "__" in layer.name}
    )
    maps = {
        name.replace("__", "/"): ops.convert_to_numpy(value).transpose(0, 3, 1, 2)
        for name, value in inner(images).items()
    }
    layers = caffe_layers(arrays)

    def convolution(x, name, **options):
        return caffe_oracle.relu(caffe_oracle.convolution(x, *layers[name], **options))

    def pool(x):
        return caffe_oracle.max_pool(x, 3, 2)

    norm = caffe_oracle.normalization
    colours = caffe_oracle.colours(images)
    expected = {
        "conv1/7x7_s2": convolution(colours, "conv1/7x7_s2", stride=2, pad=3),
        "pool1/3x3_s2": pool(maps["conv1/7x7_s2"]),
        "pool1/norm1": norm(maps["pool1/3x3_s2"]),
        "conv2/3x3_reduce": convolution(maps["pool1/norm1"], "conv2/3x3_reduce"),
        "conv2/3x3": convolution(maps["conv2/3x3_reduce"], "conv2/3x3", pad=1),
        "conv2/norm2": norm(maps["conv2/3x3"]),
        "pool2/3x3_s2": pool(maps["conv2/norm2"]),
        "pool3/3x3_s2": pool(maps["inception_3b/output"]),
        "pool4/3x3_s2": pool(maps["inception_4e/output"]),
    }
    last = {"3a": "pool2/3x3_s2", "4a": "pool3/3x3_s2", "5a": "pool4/3x3_s2"}
    before = None
    for module in caffe_oracle.MODULES:
        below = maps[last.get(module, before)]
        before = f"inception_{module}/output"
        expected[before] = caffe_oracle.inception(below, layers, f"inception_{module}")
    for name, values in expected.items():
        scale = np.abs(values).max()
        np.testing.assert_allclose(maps[name], values, atol=1e-5 * scale, err_msg=name)


@pytest.mark.slow
def test_the_exits_are_those_of_caffe(arrays, path, rng):
    images = rng.uniform(0, 255, (1, 224, 224, 3)).astype("float32")
    expected = caffe_oracle.googlenet(images, caffe_layers(arrays))
    for levels, names in ((3, ["loss1", "loss2", "pool5"]), (2, ["loss2", "pool5"])):
        outputs = model_of(224, weights=path, levels=levels)(images)
        for name, output in zip(names, outputs, strict=True):
            assert output.shape == (1, 1024)
            scale = np.abs(expected[name]).max()
            np.testing.assert_allclose(
                ops.convert_to_numpy(output), expected[name], atol=1e-4 * scale
            )


def test_exits_that_the_file_does_not_hold_stay_random(arrays, tmp_path):
    held = {name: array for name, array in arrays.items() if not name.startswith("loss2")}
    np.savez(tmp_path / "held.npz", **held, loss3__classifier=np.zeros(3))
    with pytest.raises(ValueError, match=r"unknown=\['loss3__classifier'\]$"):
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


@pytest.mark.parametrize(("side", "channels"), [(31, 3), (45, 1)])
def test_random_weights_take_any_images(side, channels, rng):
    keras.utils.set_random_seed(0)
    images = rng.uniform(0, 255, (2, side, side, channels)).astype("float32")
    for output in model_of(side, channels, levels=3)(images):
        a, b = ops.convert_to_numpy(output)
        assert np.isfinite([a, b]).all()
        assert np.abs(a - b).max() > 0.1


def test_stays_near_float32_under_mixed_precision(path, rng):
    images = rng.uniform(0, 255, (2, 64, 64, 3)).astype("float32")
    expected = ops.convert_to_numpy(model_of(64, weights=path)(images)[0])
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        features = model_of(64, weights=path)(images)[0]
    finally:
        keras.config.set_dtype_policy("float32")
    features = ops.convert_to_numpy(ops.cast(features, "float32"))
    assert np.linalg.norm(features - expected) < 0.03 * np.linalg.norm(expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"conv2__3x3/bias": None}, r"missing=\['conv2__3x3/bias'\]$"),
        ({"loss1__fc/bias": None}, r"missing=\['loss1__fc/bias'\]$"),
        ({"conv9/bias": np.zeros(3)}, r"unknown=\['conv9/bias'\]$"),
        (
            {"conv2__3x3/bias": np.zeros(3)},
            r"misshaped=\['conv2__3x3/bias \(3,\), not \(192,\)'\]$",
        ),
        (
            {"conv2__3x3/bias": np.full(192, np.nan, "float32")},
            r"not_finite_floats=\['conv2__3x3/bias'\]$",
        ),
    ],
)
def test_rejects_weights_that_do_not_fit(change, message, arrays, network):
    changed = {k: v for k, v in {**arrays, **change}.items() if v is not None}
    with pytest.raises(ValueError, match=message):
        load_arrays(network, changed, "changed.npz")


def test_rejects_another_network_and_names_the_first_of_many_weights_that_are_missing(tmp_path):
    path = tmp_path / "weights.npz"
    for arrays, message in (
        ({}, r"weights.npz', missing=\['conv1__7x7_s2/kernel', .*, '109 more'\]$"),
        ({"variant": "keras"}, "`variant`.*Received: variant='keras'"),
    ):
        np.savez(path, **arrays)
        with pytest.raises(ValueError, match=message):
            model_of(64, weights=path)


@pytest.mark.parametrize("content", ["text", "array", "cut off", "objects"])
def test_rejects_what_is_no_file_of_weights(content, path, tmp_path):
    wrong = tmp_path / "wrong.npz"
    if content == "text":
        wrong.write_text("no weights")
    elif content == "cut off":
        wrong.write_bytes(path.read_bytes()[:-1000])
    elif content == "objects":
        np.savez(wrong, **{"conv1__7x7_s2/kernel": np.array([None])})
    else:
        with wrong.open("wb") as file:
            np.save(file, np.zeros(3))
    message = "`weights`.*Received: .*wrong.npz'$"
    with pytest.raises(ValueError, match=message):
        model_of(64, weights=wrong)


def test_says_where_imagenet_weights_are():
    message = (
        "download http://dl.caffe.berkeleyvision.org/bvlc_googlenet.caffemodel or "
        "https://download.pytorch.org/models/googlenet-1378be20.pth, run `python "
        "tools/convert_googlenet.py bvlc_googlenet.caffemodel googlenet.npz` and give googlenet.npz"
    )
    with pytest.raises(FileNotFoundError, match=re.escape(message)):
        model_of(64, weights="imagenet")
    with pytest.raises(FileNotFoundError, match=r"missing\.npz"):
        model_of(64, weights="missing.npz")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"levels": 4}, ValueError, "`levels`.*Received: levels=4"),
        ({"levels": 2.0}, TypeError, "`levels`.*Received: levels=2.0"),
        ({"side": 30}, ValueError, r"31 × 31 pixels or more. Received: size=\(30, 30\)"),
        (
            {"channels": 1, "weights": "imagenet"},
            ValueError,
            "pretrained weights require images of 3 channels. Received: weights='imagenet', chan",
        ),
    ],
)
def test_rejects_wrong_arguments(options, error, message):
    with pytest.raises(error, match=message):
        model_of(**{"side": 64, **options})


@pytest.fixture(scope="module")
def cars(data_folder):
    """20 images of each of the first ten classes that nobody trains on: side -> images."""
    from PIL import Image

    folders = sorted((data_folder / "cars196").iterdir())[98:108]
    paths = [path for folder in folders for path in sorted(folder.iterdir())[:20]]

    def load(side, limit=None):
        images = [Image.open(path).convert("RGB").resize((side, side)) for path in paths[:limit]]
        return np.stack(images).astype("float32")

    return load


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("side", [224, 227])
def test_the_pretrained_network_equals_caffe(side, data_folder, cars):
    path = data_folder / "weights" / "googlenet_bvlc.npz"
    with np.load(path) as file:
        layers = caffe_layers(dict(file))
    images = cars(side, limit=1)
    expected = caffe_oracle.googlenet(images, layers)["pool5"]
    features = ops.convert_to_numpy(model_of(side, weights=path)(images)[0])
    np.testing.assert_allclose(features, expected[0], rtol=1e-4, atol=1e-4 * expected.max())


@pytest.mark.slow
@pytest.mark.data
def test_pretrained_features_distinguish_cars(data_folder, cars):
    images, labels = cars(128), np.repeat(np.arange(10), 20)
    keras.utils.set_random_seed(0)
    recalls = []
    for weights in (None, data_folder / "weights" / "googlenet_bvlc.npz"):
        features = model_of(128, weights=weights).predict(images, batch_size=32, verbose=0)
        features /= np.linalg.norm(features, axis=1, keepdims=True)
        similarity = features @ features.T
        np.fill_diagonal(similarity, -1)
        recalls.append(np.mean(labels[similarity.argmax(axis=1)] == labels))
    assert recalls[0] < 0.4 < 0.5 < recalls[1], recalls
