"""The converters, on files of the published layouts that the tests write themselves."""

import sys

import caffe_oracle
import convert_alexnet
import convert_googlenet
import convert_mean_image
import keras
import numpy as np
import pytest
from conversion import main
from keras import ops

from tfdml.models import alexnet as alexnet_module
from tfdml.models.alexnet import alexnet
from tfdml.models.googlenet import MODULES, googlenet

pytestmark = pytest.mark.usefixtures("freed")


def run(script, *arguments):
    main(script.convert, script.__doc__, [str(argument) for argument in arguments])


def features_of(build, images, path, **options):
    inputs = keras.Input(images.shape[1:])
    outputs = keras.Model(inputs, build(inputs, weights=path, **options))(images)
    return [ops.convert_to_numpy(output) for output in keras.tree.flatten(outputs)]


def random_layer(rng, outputs, inputs, size):
    scale = np.float32(np.sqrt(24 / (inputs * size**2)))
    kernel = (rng.random((outputs, inputs, size, size), "float32") - np.float32(0.5)) * scale
    return [kernel, rng.uniform(-1, 1, outputs).astype("float32")]


def flat(layer):
    """A fully connected layer, of a convolution of one pixel."""
    return [layer[0][:, :, 0, 0], layer[1]]


def convolutions():
    """Names of GoogLeNet's convolutions, Caffe's and torchvision's, and (outputs, inputs, side)."""
    yield "conv1/7x7_s2", "conv1", (64, 3, 7)
    yield "conv2/3x3_reduce", "conv2", (64, 64, 1)
    yield "conv2/3x3", "conv3", (192, 64, 3)
    channels = 192
    for module, (ones, threes, fives, pooled) in MODULES.items():
        for part, branch, shape in (
            ("1x1", "branch1", (ones, channels, 1)),
            ("3x3_reduce", "branch2.0", (threes[0], channels, 1)),
            ("3x3", "branch2.1", (threes[1], threes[0], 3)),
            ("5x5_reduce", "branch3.0", (fives[0], channels, 1)),
            ("5x5", "branch3.1", (fives[1], fives[0], 5)),
            ("pool_proj", "branch4.1", (pooled, channels, 1)),
        ):
            yield f"inception_{module}/{part}", f"inception{module}.{branch}", shape
        channels = ones + threes[1] + fives[1] + pooled


def googlenet_layers(rng):
    """All that bvlc_googlenet.caffemodel holds, (out, in, height, width) and biases."""
    layers = {name: random_layer(rng, *shape) for name, _, shape in convolutions()}
    for name, channels in (("loss1", 512), ("loss2", 528)):
        layers[f"{name}/conv"] = random_layer(rng, 128, channels, 1)
        layers[f"{name}/fc"] = flat(random_layer(rng, 1024, 2048, 1))
        layers[f"{name}/classifier"] = flat(random_layer(rng, 1000, 1024, 1))
    layers["loss3/classifier"] = flat(random_layer(rng, 1000, 1024, 1))
    return layers


UNITS = 512  # an eighth of those of CaffeNet, which are most of the memory


def caffenet_layers(rng):
    shapes = [(96, 3, 11), (256, 48, 5), (384, 256, 3), (384, 192, 3), (256, 192, 3)]
    layers = {f"conv{i}": random_layer(rng, *shape) for i, shape in enumerate(shapes, 1)}
    shapes = [(UNITS, 9216, 1), (UNITS, UNITS, 1), (1000, UNITS, 1)]
    return layers | {f"fc{i}": flat(random_layer(rng, *shape)) for i, shape in enumerate(shapes, 6)}


def torchvision_state(rng):
    """All that googlenet-1378be20.pth holds of what the network needs, and some more."""
    state = {"aux1.fc1.bias": np.zeros(1024, "float32"), "fc.bias": np.zeros(1000, "float32")}
    for caffe_name, name, (outputs, inputs, side) in convolutions():
        side = 3 if caffe_name.endswith("/5x5") else side
        state[f"{name}.conv.weight"] = random_layer(rng, outputs, inputs, side)[0]
        for part, low in (("weight", 0.5), ("bias", -1), ("running_mean", -1), ("running_var", 0)):
            state[f"{name}.bn.{part}"] = rng.uniform(low, 2, outputs).astype("float32")
        state[f"{name}.bn.num_batches_tracked"] = np.array(7)
    return state


def varint(number):
    encoded = b""
    while number > 127:
        encoded += bytes([number & 127 | 128])
        number >>= 7
    return encoded + bytes([number])


def field(number, content):
    """A field of a protobuf message: an integer, or anything of a length."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def blob(array, old):
    data = field(5, np.ascontiguousarray(array, "<f4").tobytes())
    if not old:
        return data + field(7, field(1, b"".join(map(varint, array.shape))))
    shape = (1,) * (4 - array.ndim) + array.shape
    return b"".join(field(number, side) for number, side in enumerate(shape, 1)) + data


def caffemodel(layers, old=False):
    """A NetParameter of `layers` (V1LayerParameter) if old, or else of `layer`."""
    net_field, name_field, blobs_field = (2, 4, 6) if old else (100, 1, 7)
    content = field(1, b"a net")
    for name, arrays in {"data": [], **layers}.items():
        message = field(name_field, name.encode()) + field(5 if old else 10, 1 if old else 0)
        message += b"".join(field(blobs_field, blob(array, old)) for array in arrays)
        content += field(net_field, message)
    return content


@pytest.mark.parametrize(
    ("side", "levels"),
    [(63, 1), pytest.param(224, 3, marks=pytest.mark.slow)],  # the exits, an oracle at 224 pixels
)
def test_the_googlenet_of_caffe_has_its_features(side, levels, rng, tmp_path, capsys):
    layers = googlenet_layers(rng)
    (tmp_path / "net.caffemodel").write_bytes(caffemodel(layers))
    run(convert_googlenet, tmp_path / "net.caffemodel", tmp_path / "net.npz")
    assert capsys.readouterr().out == f"{tmp_path / 'net.npz'}: 122 arrays\n"
    images = rng.uniform(0, 255, (1, side, side, 3)).astype("float32")
    if levels == 1:
        layers = {name: layer for name, layer in layers.items() if not name.startswith("loss")}
    expected = caffe_oracle.googlenet(images, layers)
    features = features_of(googlenet, images, tmp_path / "net.npz", levels=levels)
    for name, values in zip(("loss1", "loss2", "pool5")[-levels:], features, strict=True):
        np.testing.assert_allclose(values, expected[name], atol=1e-4 * expected[name].max())


def test_converts_the_googlenet_of_torchvision(rng, tmp_path, monkeypatch):
    state = torchvision_state(rng)
    monkeypatch.setattr(convert_googlenet, "read_state_dict", lambda path: state)
    (tmp_path / "net.pth").touch()
    run(convert_googlenet, tmp_path / "net.pth", tmp_path / "net.npz")
    images = rng.uniform(0, 255, (1, 64, 64, 3)).astype("float32")
    expected = caffe_oracle.torchvision_googlenet(images, state)
    (features,) = features_of(googlenet, images, tmp_path / "net.npz")
    np.testing.assert_allclose(features, expected, atol=1e-4 * expected.max())


def test_reads_files_of_pytorch_and_no_others(rng, tmp_path):
    torch, weights = pytest.importorskip("torch"), rng.normal(size=(3, 2))
    torch.save({"fc.weight": torch.tensor(weights)}, tmp_path / "net.pth")
    [(name, read)] = convert_googlenet.read_state_dict(tmp_path / "net.pth").items()
    assert name == "fc.weight"
    np.testing.assert_array_equal(read, weights)
    (tmp_path / "bad.pth").write_text("no weights")
    with pytest.raises(
        ValueError, match=r"bad\.pth is not a file of weights that PyTorch can read"
    ):
        convert_googlenet.read_state_dict(tmp_path / "bad.pth")


def test_says_that_pytorch_is_needed(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / "net.pth").touch()
    with pytest.raises(SystemExit, match="2"):
        run(convert_googlenet, tmp_path / "net.pth", tmp_path / "net.npz")
    message = f"{tmp_path / 'net.pth'} can only be read with PyTorch: pip install torch\n"
    assert capsys.readouterr().err.endswith(message)


def test_converts_caffenet(rng, tmp_path, monkeypatch):
    monkeypatch.setattr(alexnet_module, "UNITS", UNITS)
    layers = caffenet_layers(rng)
    (tmp_path / "net.caffemodel").write_bytes(caffemodel(layers, old=True))
    run(convert_alexnet, tmp_path / "net.caffemodel", tmp_path / "net.npz")
    images = rng.uniform(0, 255, (1, 227, 227, 3)).astype("float32")
    expected = caffe_oracle.caffenet(images, layers)
    (features,) = features_of(alexnet, images, tmp_path / "net.npz")
    np.testing.assert_allclose(features, expected, atol=1e-4 * expected.max())


def test_converts_a_mean_image_red_first(rng, tmp_path):
    planes = rng.uniform(0, 255, (3, 5, 200)).astype(np.float32)  # blue, green, red
    path = tmp_path / "mean.binaryproto"
    path.write_bytes(blob(planes, old=True))
    mean = convert_mean_image.convert(path)
    assert (mean.shape, mean.dtype) == ((5, 200, 3), np.float32)
    np.testing.assert_array_equal(mean, planes[::-1].transpose(1, 2, 0))
    for content in (b"\xff" * 9, blob(planes, old=True)[:-4]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is not a complete"):
            convert_mean_image.convert(path)


def one_layer(name="conv1/7x7_s2", kernel=(64, 3, 7, 7), biases=1):
    return {name: [np.zeros(kernel, "float32"), *[np.zeros(64, "float32")] * biases]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "net.caffemodel is not a .caffemodel: it has no layer with weights"),
        (caffemodel(one_layer(), old=True)[:-100], "is not a complete .caffemodel"),
        (caffemodel(one_layer()), "net.caffemodel', differ=['conv2__3x3_reduce/kernel"),
        (caffemodel(one_layer(biases=2)), "layer conv1/7x7_s2 must have only a kernel and a bias"),
        (
            caffemodel(one_layer("loss1/fc", (1024, 9))),
            "loss1/fc must take maps of (128, 4, 4). Received: size=9",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "file",
)
def test_rejects_other_files(content, message, tmp_path, capsys):
    source = tmp_path / "net.caffemodel"
    source.write_bytes(content)
    with pytest.raises(SystemExit, match="2"):
        run(convert_googlenet, source, tmp_path / "net.npz")
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize(
    ("source", "out", "message"),
    [
        ("missing", "out.npz", "there is no file"),
        ("net.caffemodel", "net.h5", "must end in .npz. Received:"),
        ("net.caffemodel", "there.npz", "there.npz exists: choose another name or delete it"),
        ("net.caffemodel", "folder/out.npz", "there is no folder"),
    ],
)
def test_rejects_paths(source, out, message, tmp_path, capsys):
    (tmp_path / "net.caffemodel").touch()
    (tmp_path / "there.npz").write_text("mine")
    with pytest.raises(SystemExit, match="2"):
        run(convert_googlenet, tmp_path / source, tmp_path / out)
    assert message in capsys.readouterr().err
    assert (tmp_path / "there.npz").read_text() == "mine"
