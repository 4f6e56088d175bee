import re

import caffe_oracle
import keras
import numpy as np
import pytest
from keras import ops

from tfdml.models.caffe import max_pool
from tfdml.models.googlenet import googlenet


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
def arrays():
    """Random weights and biases, with exits."""
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    arrays = arrays_of(model_of(224, levels=3))
    return {
        name: rng.uniform(-0.1, 0.1, array.shape).astype("float32") if "bias" in name else array
        for name, array in arrays.items()
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


@pytest.mark.parametrize("side", [63, 64])
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


@pytest.mark.data
@pytest.mark.parametrize("side", [224, 227])
def test_the_pretrained_network_equals_caffe(side, data_folder, cars):
    path = data_folder / "weights" / "googlenet_bvlc.npz"
    with np.load(path) as file:
        layers = caffe_layers(dict(file))
    image = cars(side).test.images[:1]
    expected = caffe_oracle.googlenet(image, layers)["pool5"]
    features = ops.convert_to_numpy(model_of(side, weights=path)(image)[0])
    np.testing.assert_allclose(features, expected[0], atol=1e-4 * expected.max())
