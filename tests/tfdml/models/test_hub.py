"""Backbones of KerasHub presets, small and random ones of each family, and of functions."""

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from small_models import by_default
from small_runs import completed

import pipelines
import tfdml
from tfdml import losses, runs
from tfdml.models import (
    backbone_of,
    build_embedder,
    layer_multipliers,
    recomputable_blocks,
    recomputing,
)
from tfdml.models.hub import add_adapters, preset_image_size
from tfdml.runs.devices import Devices
from tfdml.runs.run_images import Images

keras_hub = pytest.importorskip("keras_hub")
pytestmark = pytest.mark.usefixtures("without_xla")
models = keras_hub.models
SIDE = 28
SHAPE, TOKENS = (SIDE, SIDE, 3), {"num_layers": 2, "num_heads": 2, "hidden_dim": 16}
SCALE, OFFSET = [1 / 50, 1 / 60, 1 / 70], [-2.0, -1.5, -1.0]
PATCHES = {"patch_size": 14, "intermediate_dim": 32, "image_shape": SHAPE, **TOKENS}
CLIP_TEXTS = {"vocabulary_size": 9, "embedding_dim": 8, "num_layers": 1, "num_heads": 1}
CLIP_TEXTS |= {"hidden_dim": 8, "intermediate_dim": 8, "max_sequence_length": 4}


def clip():
    parts = models.CLIPVisionEncoder(**PATCHES), models.CLIPTextEncoder(**CLIP_TEXTS)
    return models.CLIPBackbone(*parts, projection_dim=8)


def siglip():
    own = {"vocabulary_size": 9, "embedding_dim": 16, "max_sequence_length": 4, **TOKENS}
    texts = models.SigLIPTextEncoder(intermediate_dim=8, projection_dim=16, **own)
    return models.SigLIPBackbone(models.SigLIPVisionEncoder(**PATCHES), texts)


def resnet():
    stacks = {"stackwise_num_filters": [64, 64], "stackwise_num_blocks": [1, 1]}
    stacks |= {"stackwise_num_strides": [1, 2], "block_type": "basic_block"}
    stem = {"input_conv_filters": [64], "input_conv_kernel_sizes": [3]}
    return models.ResNetBackbone(**stem, **stacks)


# Family -> its network, number of features by default, the module of its image converter.
FAMILIES = {
    "vit": (lambda: models.ViTBackbone(SHAPE, (14, 14), 2, 2, 16, 32), 16, "ViT"),
    "dinov2": (
        lambda: models.DINOV2Backbone(
            num_register_tokens=2, position_embedding_shape=(42, 42, 3), **PATCHES
        ),
        16,
        "DINOV2",
    ),
    "dinov3": (lambda: models.DINOV3Backbone(**PATCHES), 16, "DINOV3"),
    "clip": (clip, 16, "CLIP"),
    "siglip": (siglip, 16, "SigLIP"),
    "resnet": (resnet, 64, "ResNet"),
}


@pytest.fixture(scope="module", params=by_default(FAMILIES, {"dinov2", "resnet"}))
def preset(request, tmp_path_factory):
    """(family, folder of a preset of it, with random weights, number of features)."""
    network, features, name = FAMILIES[request.param]
    folder = tmp_path_factory.mktemp("presets") / request.param
    keras.utils.set_random_seed(0)
    network().save_to_preset(str(folder))
    kind = getattr(keras_hub.layers, f"{name}ImageConverter")
    kind(image_size=(SIDE, SIDE), scale=SCALE, offset=OFFSET).save_to_preset(str(folder))
    return request.param, folder, features


def scaled(images):
    return (images * SCALE + OFFSET).astype("float32")


@pytest.fixture
def images(rng):
    return rng.uniform(0, 255, (6, *SHAPE)).astype("float32")


def test_a_preset_gives_its_features_in_the_scale_of_its_colours(preset, images):
    _, folder, features = preset
    assert preset_image_size(str(folder)) == SIDE
    embedder = build_embedder(f"hub:{folder}", None, input_shape=SHAPE, normalize=False)
    found = embedder.predict(images, verbose=0)
    assert found.shape == (6, features)
    network = models.Backbone.from_preset(str(folder))
    network = getattr(network, "vision_encoder", network)
    expected = np.asarray(network(scaled(images)))
    if expected.ndim > 2:
        expected = expected[:, 0] if expected.ndim == 3 else expected.mean((1, 2))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_an_embedder_trains_and_is_saved_and_loaded(preset, images, tmp_path):
    _, folder, _ = preset
    model = tfdml.EmbeddingModel(build_embedder(f"hub:{folder}", 4, input_shape=SHAPE))
    model.compile(optimizer=keras.optimizers.Adam(1e-3), loss="triplet", run_eagerly=True)
    before = model.embed(images)
    model.fit(images, np.array([0, 0, 1, 1, 2, 2]), verbose=0)
    after = model.embed(images)
    assert np.abs(after - before).max() > 1e-4
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.embed(images), after, atol=1e-6)
    for each in (model, loaded):  # with the state of the optimizer
        each.fit(images, np.array([0, 0, 1, 1, 2, 2]), shuffle=False, verbose=0)
    np.testing.assert_array_equal(loaded.embed(images), model.embed(images))
    assert backbone_of(loaded.embedder).output_shape == backbone_of(model.embedder).output_shape


def test_adapters_are_trained_and_the_backbone_stays(preset, images, tmp_path):
    family, folder, _ = preset
    embedder = build_embedder(f"hub:{folder}", 4, input_shape=SHAPE)
    backbone_of(embedder).trainable = False
    if family == "resnet":
        with pytest.raises(ValueError, match="adapters need a backbone with attention or dense"):
            add_adapters(embedder, 1)
        return
    add_adapters(embedder, 1)
    trained = sum(np.prod(variable.shape) for variable in embedder.trainable_variables)
    assert trained < 0.05 * embedder.count_params()
    adapters_learn_alone(embedder, images, tmp_path)


@pytest.mark.usefixtures("own_backbones")
def test_adapters_of_a_function_stand_at_its_dense_layers(images, tmp_path):
    embedder = build_embedder("own_backbones:dense", 4, input_shape=SHAPE)
    backbone_of(embedder).trainable = False
    add_adapters(embedder, 2)
    adapters_learn_alone(embedder, images, tmp_path)


def adapters_learn_alone(embedder, images, tmp_path):
    model, labels = tfdml.EmbeddingModel(embedder), np.array([0, 0, 1, 1, 2, 2])
    model.compile(optimizer=keras.optimizers.Adam(1e-2), loss="triplet", run_eagerly=True)
    learned = [variable.path for variable in model.trainable_variables]
    assert all("lora_kernel" in path or path.startswith("embedding/") for path in learned)
    before = {v.path: np.array(v) for v in embedder.variables}
    for _ in range(2):  # the first moves one of the two factors alone
        model.fit(images, labels, shuffle=False, verbose=0)
    for variable in embedder.variables:
        same = np.array_equal(before[variable.path], variable)
        assert same == (variable.path not in learned), variable.path
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert len(loaded.trainable_variables) == len(learned)
    for each in (model, loaded):
        each.fit(images, labels, shuffle=False, verbose=0)
    np.testing.assert_array_equal(loaded.embed(images), model.embed(images))


def test_rates_fall_from_the_head_to_the_first_block(preset):
    embedder = build_embedder(f"hub:{preset[1]}", 4, input_shape=SHAPE)
    factors = layer_multipliers(embedder, 0.5)
    assert 0 < factors[0] <= 0.25  # two blocks or more are between
    assert factors[-2:] == [1, 1]


@pytest.mark.parametrize("tune", ["full", "lora"])
def test_blocks_that_are_computed_again_have_the_same_gradients(tune, preset, images, monkeypatch):
    labels, loss, found = np.repeat(np.arange(3), 2), losses.get("triplet"), []
    remat, wrapped = keras.remat, []
    monkeypatch.setattr(keras, "remat", lambda call: wrapped.append(call) or remat(call))
    embedder = build_embedder(f"hub:{preset[1]}", 4, input_shape=SHAPE)
    if preset[0] == "resnet":
        with pytest.raises(ValueError, match="blocks, such as a transformer"):
            recomputable_blocks(embedder)
        return
    if tune == "lora":
        backbone_of(embedder).trainable = False
        add_adapters(embedder, 1)

    def gradients():
        with tf.GradientTape() as tape:
            value = loss(labels, embedder(images, training=True))
        slopes = tape.gradient(value, embedder.trainable_variables)
        return [tf.convert_to_tensor(slope) for slope in slopes]  # those of positions are slices

    for blocks in ([], recomputable_blocks(embedder)):
        with recomputing(blocks):
            found.append(tf.function(gradients, autograph=False)())
        assert bool(wrapped) == bool(blocks)
    for plain, again in zip(*found, strict=True):
        np.testing.assert_allclose(again, plain, atol=1e-5)


@pytest.mark.parametrize("preset", ["dinov2"], indirect=True)
def test_a_run_computes_blocks_again_if_asked(preset, images, monkeypatch):
    pixels, labels, changed = images.astype("uint8"), np.repeat(np.arange(3), 2), []
    splits = pipelines.Split(pixels, labels), pipelines.Split(pixels, labels + 3)
    seen = Images(*splits, None, pipelines.Dataset("x", *splits, SHAPE))
    options = {"backbone": f"hub:{preset[1]}", "head_steps": 0, "steps": 2, "loss": "triplet"}
    options |= {"classes_per_batch": 3, "images_per_class": 2}

    def fit(self, model, *_, **__):
        layers = model.embedder._flatten_layers()
        changed.append({layer.name for layer in layers if "call" in vars(layer)})

    monkeypatch.setattr(Devices, "fit", fit)
    for recompute in (False, True):
        with runs.prepare(completed(**options, recompute=recompute), images=seen) as run:
            run.train()
    assert changed == [set(), {block.name for block in recomputable_blocks(run.model.embedder)}]


def test_other_image_sizes_resize_the_positions(preset):
    family, folder, features = preset
    shape = (56, 56, 3)
    embedder = build_embedder(f"hub:{folder}", None, input_shape=shape)
    grey = np.full((1, *shape), 128, "float32")
    assert embedder.predict(grey, verbose=0).shape == (1, features)
    same = build_embedder(f"hub:{folder}", None, input_shape=SHAPE)
    added = embedder.count_params() - same.count_params()
    positions = 12  # 4 × 4 patches in place of 2 × 2
    own = {"dinov2": 2 * 16 * positions, "vit": 16 * positions}
    own |= dict.fromkeys(["clip", "siglip"], 17 * positions)  # with their numbers
    assert added == own.get(family, 0)


@pytest.mark.parametrize("preset", ["dinov2"], indirect=True)
@pytest.mark.parametrize("side", by_default([28, 42, 56], {42}))
def test_positions_of_another_grid_are_those_of_keras_hub(side, preset, rng):
    _, folder, _ = preset
    shape = (side, side, 3)
    images = rng.uniform(0, 255, (2, *shape)).astype("float32")
    embedder = build_embedder(f"hub:{folder}", None, input_shape=shape, normalize=False)
    expected = models.DINOV2Backbone.from_preset(str(folder), image_shape=shape)
    found, tokens = (
        each(image) for each, image in ((embedder, images), (expected, scaled(images)))
    )
    np.testing.assert_allclose(found, tokens[:, 0], atol=1e-5)


@pytest.mark.parametrize("preset", ["dinov2"], indirect=True)
def test_tokens_are_pooled(preset, images):
    _, folder, _ = preset
    tokens = np.asarray(models.Backbone.from_preset(str(folder))(scaled(images)))
    patches = tokens[:, 3:]  # behind the class token and two registers
    gem = (np.maximum(patches, 1e-6) ** 3).mean(axis=1) ** (1 / 3)
    both = np.concatenate([tokens[:, 0], patches.mean(axis=1)], axis=1)
    options = {"input_shape": SHAPE, "normalize": False}
    for pooling, expected in {"average": both[:, 16:], "gem": gem, "class+average": both}.items():
        found = build_embedder(f"hub:{folder}", None, pooling=pooling, **options)(images)
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_what_cannot_be_is_a_sentence(preset, tmp_path):
    family, folder, _ = preset
    if family != "resnet":
        with pytest.raises(ValueError, match=r"patches of 14×14 pixels must divide the images"):
            build_embedder(f"hub:{folder}", input_shape=(30, 28, 3))
    with pytest.raises(ValueError, match=r"^`pooling` of this network must be one of"):
        build_embedder(f"hub:{folder}", input_shape=SHAPE, pooling="middle")
    with pytest.raises(ValueError, match=r"cannot load .*: Preset .* has no config.json$"):
        build_embedder(f"hub:{tmp_path}", input_shape=SHAPE)
    with pytest.raises(ValueError, match="must be None for small_cnn, presets and functions"):
        build_embedder(f"hub:{folder}", input_shape=SHAPE, weights="imagenet")


def test_without_keras_hub_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras_hub.layers", None)
    with pytest.raises(ImportError, match=r'pip install "tfdml\[hub\]"'):
        build_embedder("hub:dinov2_base", input_shape=SHAPE)


@pytest.mark.parametrize("name", ["dinov2_base", "kaggle://a/b/keras/c", "hf://a/b"])
def test_without_a_network_it_says_what_to_do(name, monkeypatch):
    errors = pytest.importorskip("huggingface_hub.errors")

    def from_kaggle(*_, **__):
        raise OSError("HTTPSConnectionPool(host='kaggle'): Max retries exceeded. (Caused by")

    def from_hugging_face(*_, **__):
        raise errors.LocalEntryNotFoundError("An error happened while trying to locate the file")

    monkeypatch.setattr("kagglehub.model_download", from_kaggle)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", from_hugging_face)
    with pytest.raises(ValueError, match=rf"'{name}', .*: its host cannot be .* give hub:FOLDER$"):
        build_embedder(f"hub:{name}", input_shape=SHAPE)


OWN = """
import keras

def small(shape):
    inputs = keras.Input(shape)
    return keras.Model(inputs, keras.layers.Conv2D(5, 3)(inputs / 255))

def dense(shape):
    inputs = keras.Input(shape)
    x = keras.layers.AveragePooling2D(7)(inputs / 255)
    x = keras.layers.BatchNormalization()(keras.layers.Dense(8, "relu")(x))
    return keras.Model(inputs, keras.layers.Dense(6)(x))
"""


@pytest.fixture
def own_backbones(monkeypatch, tmp_path):
    (tmp_path / "own_backbones.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_backbones", raising=False)


@pytest.mark.usefixtures("own_backbones")
def test_a_function_gives_the_backbone(images):
    embedder = build_embedder("own_backbones:small", 4, input_shape=SHAPE)
    assert embedder.predict(images, verbose=0).shape == (6, 4)
    with pytest.raises(ValueError, match="has no attribute"):
        build_embedder("own_backbones:large", input_shape=SHAPE)
