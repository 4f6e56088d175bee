import json
import re
import urllib.error
import urllib.request

import keras
import numpy as np
import pytest
from small_models import by_default, outputs

from tfdml.layers import FusedBatchNormalization
from tfdml.models import BACKBONES, backbone_of, build_embedder
from tfdml.models.backbones import POOLED
from tfdml.models.embedder import head_of, start_head
from tfdml.models.precision import built_with

pytestmark = pytest.mark.usefixtures("freed")

# The smallest backbones, on which options are tried; and the others, once each.
SHAPES = {"small_cnn": (28, 28, 1), "mobilenet_v2": (64, 64, 3)}
LARGE_SHAPES = {
    "alexnet": (39, 39, 3),
    "convnext_tiny": (32, 32, 3),
    "efficientnet_b0": (32, 32, 3),
    "googlenet": (64, 64, 3),
    "inception_v3": (75, 75, 3),
    "resnet50": (32, 32, 3),
}


def test_every_backbone_is_tried():
    assert {*SHAPES, *LARGE_SHAPES} == {*BACKBONES}


@pytest.mark.parametrize("backbone", by_default(BACKBONES, {"small_cnn"}))
def test_takes_images_of_one_channel(backbone, rng):
    shape = (*{**SHAPES, **LARGE_SHAPES}[backbone][:2], 1)
    rows = outputs(build_embedder(backbone, 4, input_shape=shape), rng.uniform(0, 255, (2, *shape)))
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("backbone", by_default(BACKBONES, {*SHAPES, "googlenet"}))
def test_has_an_embedding_for_each_level_and_is_saved_whole(backbone, rng, tmp_path):
    shape, levels = {**SHAPES, **LARGE_SHAPES}[backbone], 1 if backbone == "alexnet" else 3
    shares = [0.7, 0.7, 0.4][-levels:]
    images = rng.uniform(0, 255, (2, *shape)).astype("float32")
    embedder = build_embedder(backbone, 4, input_shape=shape, levels=levels, dropout=shares)
    found = outputs(embedder, images)
    rows = found.reshape(2, levels, 4)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=2), 1, atol=1e-6)
    suffixes = [""] if levels == 1 else [1, 2, 3]
    assert [embedder.get_layer(f"dropout{suffix}").rate for suffix in suffixes] == shares
    if levels > 1:
        assert np.abs(rows[:, 0] - rows[:, 1]).max() > 1e-3  # of features of their own
        widths = [each.units for each in embedder.layers if each.name.endswith("_fc")]
        assert widths == [1024, 1024]
    embedder.save(tmp_path / "embedder.keras")
    restored = keras.models.load_model(tmp_path / "embedder.keras")
    np.testing.assert_array_equal(outputs(restored, images), found)


@pytest.mark.parametrize("options", [{}, {"levels": 2}, {"mirror": True, "dropout": 0.5}])
def test_the_backbone_ends_before_the_last_embedding(options, rng):
    embedder = build_embedder("small_cnn", 8, input_shape=(28, 28, 1), normalize=False, **options)
    images = rng.uniform(0, 255, (3, 28, 28, 1)).astype("float32")
    features = outputs(backbone_of(embedder), images)
    assert features.shape == (3, 576)
    last = embedder.get_layer("embedding2" if "levels" in options else "embedding")
    expected = outputs(embedder, images)[:, -8:]
    np.testing.assert_allclose(last(features), expected, rtol=1e-4, atol=1e-4)


def test_a_head_starts_as_the_principal_components_of_the_features(rng):
    embedder = build_embedder("small_cnn", 8, input_shape=(28, 28, 1), dropout=0.5)
    images = rng.uniform(0, 255, (20, 28, 28, 1)).astype("float32")
    features = outputs(backbone_of(embedder), images)
    start_head(embedder, features)
    left, values, _ = np.linalg.svd(features - features.mean(axis=0), full_matrices=False)
    components = (left * values)[:, :8]
    components /= np.linalg.norm(components, axis=1, keepdims=True)
    found = outputs(head_of(embedder), features)
    np.testing.assert_allclose(found @ found.T, components @ components.T, atol=1e-3)
    np.testing.assert_allclose(outputs(embedder, images), found, atol=1e-5)


@pytest.mark.parametrize("backbone", by_default(SHAPES, {"small_cnn"}))
def test_a_mirrored_embedder_takes_either_side_for_the_same(backbone, rng, tmp_path):
    images = rng.uniform(0, 255, (2, *SHAPES[backbone])).astype("float32")
    embedder = build_embedder(backbone, 4, input_shape=SHAPES[backbone], mirror=True)
    embedder.save(tmp_path / "embedder.keras")
    for model in (embedder, keras.models.load_model(tmp_path / "embedder.keras")):
        embeddings = outputs(model, images)
        np.testing.assert_allclose(embeddings, outputs(model, images[:, :, ::-1]), atol=1e-5)
        np.testing.assert_allclose(embeddings, outputs(embedder, images), atol=1e-6)
    one_sided = build_embedder(backbone, 4, input_shape=SHAPES[backbone])
    one_sided.set_weights(embedder.get_weights())
    in_training, expected = embedder(images, training=True), one_sided(images, training=True)
    np.testing.assert_allclose(in_training, expected, atol=1e-5)
    assert np.abs(outputs(one_sided, images) - embeddings).max() > 1e-4


def batch_norms(embedder):
    """The layers of batch normalisation, and whether each may be trained."""
    network = embedder
    if "mirror_average" in {layer.name for layer in embedder.layers}:
        network = embedder.get_layer("mirror_average").layer
    kind = keras.layers.BatchNormalization
    return [layer for layer in network.layers if isinstance(layer, kind)]


def test_pretrained_weights_freeze_batch_normalisation_and_nothing_else(rng, tmp_path):
    weights, shape = str(tmp_path / "some.weights.h5"), (32, 32, 3)
    options = {"include_top": False, "weights": None, "pooling": "avg"}
    pretrained = keras.applications.MobileNetV2(shape, **options)
    pretrained.save_weights(weights)
    options = {"input_shape": shape, "weights": weights}
    embedder = build_embedder("mobilenet_v2", 4, **options)
    images = rng.uniform(0, 255, (4, *shape)).astype("float32")
    expected = outputs(pretrained, images / 127.5 - 1)
    np.testing.assert_allclose(outputs(backbone_of(embedder), images), expected, atol=1e-4)
    assert not any(layer.trainable for layer in batch_norms(embedder))
    assert sum("kernel" in v.path for v in embedder.trainable_variables) == 52 + 1
    assert len(embedder.trainable_variables) == 52 + 2
    thawed = build_embedder("mobilenet_v2", 4, **options, freeze_batch_norm=False)
    assert all(layer.trainable for layer in batch_norms(thawed))


def test_networks_of_keras_are_adapted_to_training_in_16_bits(rng, tmp_path):
    with built_with("mixed_bfloat16"):
        embedder = build_embedder("mobilenet_v2", 4, input_shape=(32, 32, 3))
    small = build_embedder("small_cnn", 4, input_shape=(8, 8, 1))
    norms = [*batch_norms(embedder), *batch_norms(small)]
    kinds = {(type(layer), layer.momentum) for layer in norms}
    assert kinds == {(FusedBatchNormalization, 0.9)}
    strided = [each for each in embedder.layers if isinstance(each, keras.layers.DepthwiseConv2D)]
    policies = {each.strides[0]: each.dtype_policy.name for each in strided}
    assert policies == {1: "mixed_bfloat16", 2: "float32"}
    embedder.save(tmp_path / "embedder.keras")
    restored = keras.models.load_model(tmp_path / "embedder.keras")
    assert {type(layer) for layer in batch_norms(restored)} == {FusedBatchNormalization}
    images = rng.uniform(0, 255, (4, 32, 32, 3)).astype("float32")
    rows = outputs(embedder, images)
    np.testing.assert_array_equal(outputs(restored, images), rows)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("mirror", [False, True])
def test_frozen_batch_normalisation_keeps_all_its_values(mirror, rng, tmp_path):
    images = rng.uniform(0, 255, (4, 28, 28, 1)).astype("float32")
    options = {"input_shape": (28, 28, 1), "mirror": mirror}
    embedder = build_embedder("small_cnn", 4, **options, freeze_batch_norm=True)
    embedder.save(tmp_path / "embedder.keras")
    for model in (embedder, keras.models.load_model(tmp_path / "embedder.keras")):
        assert len(batch_norms(model)) == 4
        before = [np.array(v) for layer in batch_norms(model) for v in layer.variables]
        model(images, training=True)
        after = [np.array(v) for layer in batch_norms(model) for v in layer.variables]
        for old, new in zip(before, after, strict=True):
            np.testing.assert_array_equal(old, new)
        assert not [v for layer in batch_norms(model) for v in layer.trainable_variables]
        assert len(model.trainable_variables) == 4 + 2  # kernels, and the embedding
    trained = build_embedder("small_cnn", 4, **options)
    before = np.array(batch_norms(trained)[0].moving_mean)
    trained(images, training=True)
    assert np.abs(before - np.array(batch_norms(trained)[0].moving_mean)).max() > 0
    assert len(trained.trainable_variables) == 4 + 2 + 4 * 2


@pytest.mark.parametrize("mirror", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("backbone", by_default(POOLED, {"mobilenet_v2"}))
def test_maxima_of_the_last_maps_may_be_added_to_the_averages(backbone, mirror, rng, tmp_path):
    height, width, channels = {**SHAPES, **LARGE_SHAPES}[backbone]
    shape = (2 * height, 2 * width, channels)  # maps of several pixels
    images = rng.uniform(0, 255, (2, *shape)).astype("float32")
    options = {"input_shape": shape, "normalize": False, "mirror": mirror}
    embedder = build_embedder(backbone, None, **options, pooling="average+max")
    network = embedder.get_layer("mirror_average").layer if mirror else embedder
    pool = network.get_layer("max_pool")
    expected = 0
    for side in (images, images[:, :, ::-1])[: 1 + mirror]:
        maps = outputs(keras.Model(network.input, pool.input), side)
        assert maps.shape[1] > 1
        expected = expected + (maps.mean((1, 2)) + maps.max((1, 2))) / (1 + mirror)
    if backbone == "convnext_tiny":
        expected -= expected.mean(1, keepdims=True)
        expected /= np.sqrt((expected**2).mean(1, keepdims=True) + 1e-6)
    embedder.save(tmp_path / "embedder.keras")
    for model in (embedder, keras.models.load_model(tmp_path / "embedder.keras")):
        np.testing.assert_allclose(outputs(model, images), expected, rtol=1e-3, atol=1e-4)
    plain = build_embedder(backbone, None, **options)
    assert [w.shape for w in plain.get_weights()] == [w.shape for w in embedder.get_weights()]


def test_takes_numpy_scalars():
    shape = tuple(np.array([8, 8, 1]))
    embedder = build_embedder("small_cnn", np.int64(4), input_shape=shape, dropout=np.float32(0.5))
    assert embedder.output_shape == (None, 4)
    assert keras.Model.from_config(embedder.get_config()).input_shape == (None, 8, 8, 1)
    assert json.loads(embedder.to_json())


WRONG = [  # arguments, the first by its value
    *({"embedding_dim": value} for value in (0, 8.0, True, 5_000_000)),
    *({"input_shape": value} for value in ((28, 28), (28, 28.0, 1), 28, "abc")),
    *({"dropout": value} for value in (1.0, "0.1", [0.5, 0.5])),
    *({"levels": value} for value in (4, 2.0)),
    *({"levels": 2, "embedding_dim": None}, {"levels": 3, "backbone": "alexnet"}),
    *({"pooling": value} for value in ("average+max", "max")),
    *({"freeze_batch_norm": 1}, {"weights": "imagenet"}, {"weights": "missing.h5"}),
]


@pytest.mark.parametrize("arguments", WRONG, ids=str)
def test_rejects_wrong_arguments(arguments):
    (name, value), *_ = arguments.items()
    message = rf"Received: .*{re.escape(f'{name}={value!r}')}"
    with pytest.raises((OSError, TypeError, ValueError), match=message):
        build_embedder(**{"backbone": "small_cnn", "input_shape": (28, 28, 1), **arguments})


def test_an_unknown_backbone_is_rejected_with_the_nearest():
    with pytest.raises(ValueError, match=r"Unknown backbone 'smal_cnn'. Did you mean 'small_cnn'"):
        build_embedder("smal_cnn", input_shape=(28, 28, 1))


@pytest.mark.parametrize("name", ["text.h5", "other.weights.h5"])
def test_rejects_a_file_of_other_weights(name, tmp_path):
    path = tmp_path / name
    path.write_text("no weights")
    if name.startswith("other"):
        build_embedder("small_cnn", 8, input_shape=(32, 32, 3)).save_weights(path)
    message = f"`weights`.*MobileNetV2.*Received: .*{name}'$"
    with pytest.raises(ValueError, match=message):
        build_embedder("mobilenet_v2", 8, input_shape=(32, 32, 3), weights=str(path))


def test_pretrained_weights_need_three_channels(tmp_path):
    path = tmp_path / "some.weights.h5"
    path.touch()
    for weights in ("imagenet", str(path)):
        message = r"require images of 3 channels. Received: weights='.*', channels=1, backbone="
        with pytest.raises(ValueError, match=message):
            build_embedder("mobilenet_v2", 8, input_shape=(32, 32, 1), weights=weights)


@pytest.mark.parametrize(
    ("backbone", "side", "file"),
    [
        ("mobilenet_v2", 96, "1.0_96_no_top"),
        ("mobilenet_v2", 112, "1.0_224_no_top"),
        ("efficientnet_b0", 32, "/efficientnetb0_notop"),
    ],
)
@pytest.mark.filterwarnings("error::UserWarning")  # Keras' of sides without weights of their own
def test_names_the_file_of_weights_that_cannot_be_downloaded(
    backbone, side, file, monkeypatch, tmp_path
):
    def no_network(*_, **__):
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", no_network)
    monkeypatch.setattr("keras.src.backend.config._KERAS_DIR", str(tmp_path), raising=False)
    message = rf"https://\S+{file}.h5: .*no network\. .* path as `weights`$"
    with pytest.raises(OSError, match=message):
        build_embedder(backbone, 8, input_shape=(side, side, 3), weights="imagenet")


@pytest.mark.parametrize("normalize", [True, False])
def test_the_features_may_be_the_embedding(normalize, rng):
    images = rng.uniform(0, 255, (3, 28, 28, 1)).astype("float32")
    with built_with("mixed_float16"):
        embedder = build_embedder("small_cnn", None, input_shape=(28, 28, 1), normalize=normalize)
    found, features = (outputs(model, images) for model in (embedder, backbone_of(embedder)))
    assert found.dtype == np.float32
    features = features.astype("float64")
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    np.testing.assert_allclose(found, features / lengths if normalize else features, atol=1e-3)
