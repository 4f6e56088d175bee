"""Rates of layers, adapters that are kept alone, and what does not fit in the memory."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdml
from tfdml.models import backbone_of, build_embedder, layer_multipliers, load_adapters, tuning
from tfdml.models import save_adapters as save
from tfdml.models.hub import add_adapters

OWN = """
import keras

@keras.saving.register_keras_serializable("tests")
class Block(keras.layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = keras.layers.Dense(6)

    def build(self, shape):
        self.inner.build(shape)

    def call(self, x, beside=None):
        return x + self.inner(x * beside)

@keras.saving.register_keras_serializable("tests")
class Encoder(keras.layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.blocks = [Block(name=f"block_{i}") for i in range(3)]

    def build(self, shape):
        for block in self.blocks:
            block.build(shape)

    def call(self, x):
        for block in self.blocks:
            x = block(x, beside=x)
        return x

def transformer(shape):
    inputs = keras.Input(shape)
    x = keras.layers.Dense(6, name="patches")(keras.layers.Flatten()(inputs / 255))
    return keras.Model(inputs, keras.layers.LayerNormalization(name="norm")(Encoder()(x)))
"""


@pytest.fixture
def embedder(monkeypatch, tmp_path):
    (tmp_path / "own_transformer.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    return build_embedder("own_transformer:transformer", 4, input_shape=(4, 4, 1))


def factors_of(embedder, factors):
    return {
        variable.path: factor
        for variable, factor in zip(embedder.trainable_variables, factors, strict=True)
    }


def test_rates_fall_from_block_to_block(embedder):
    found = factors_of(embedder, layer_multipliers(embedder, 0.5))
    wanted = {"norm": 1, "block_2": 0.5, "block_1": 0.25, "block_0": 0.125, "patches": 0.0625}
    for path, factor in found.items():
        expected = [of for name, of in wanted.items() if f"{name}/" in path]
        assert factor == (expected or [1])[0], path
    assert set(wanted.values()) == set(found.values())


def test_layers_without_blocks_are_in_twelve_parts():
    embedder = build_embedder("mobilenet_v2", 4, input_shape=(32, 32, 3))
    found = factors_of(embedder, layer_multipliers(embedder, 0.9))
    assert sorted(set(found.values())) == pytest.approx([0.9**i for i in range(11, -1, -1)])
    assert list(found.values()) == sorted(found.values())


def test_tensors_by_keyword_have_gradients_where_blocks_are_computed_again(embedder, rng):
    images = rng.uniform(0, 255, (3, 4, 4, 1)).astype("float32")
    found = []
    for blocks in ([], tuning.recomputable_blocks(embedder)):
        with tuning.recomputing(blocks), tf.GradientTape() as tape:
            value = keras.ops.sum(embedder(images, training=True)[:, :2] ** 3)
        found.append(tape.gradient(value, embedder.trainable_variables))
    for plain, again in zip(*found, strict=True):
        np.testing.assert_allclose(again, plain, atol=1e-5)


@pytest.mark.parametrize("name", ["activity_regularizer", "_seed_generators"])
def test_what_differs_when_it_is_computed_again_is_rejected(name, embedder):
    layers = backbone_of(embedder)._flatten_layers()
    [block] = [layer for layer in layers if layer.name == "block_1"]
    vars(block.inner)[name] = [keras.regularizers.L2()]
    with pytest.raises(ValueError, match="without dropout, batch normalisation and regularizers"):
        tuning.recomputable_blocks(embedder)
    with pytest.raises(ValueError, match="`recompute` needs a backbone of blocks"):
        tuning.recomputable_blocks(build_embedder("small_cnn", 4, input_shape=(16, 16, 1)))


def test_multiplied_variables_learn_slower_and_so_after_loading(embedder, tmp_path):
    factors = layer_multipliers(embedder, 0.5)
    optimizer = tfdml.optimizers.SGD(0.1, layer_multipliers=factors)
    kept = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(optimizer))
    for each in (optimizer, kept):
        variables = embedder.trainable_variables
        each.build(variables)
        before = [variable.numpy() for variable in variables]
        each.apply([keras.ops.ones_like(variable) for variable in variables])
        for variable, old, factor in zip(variables, before, factors, strict=True):
            np.testing.assert_allclose(old - variable, 0.1 * factor, rtol=1e-4, atol=1e-6)


def test_adapters_alone_make_the_same_embedder_of_the_same_backbone(embedder, tmp_path, rng):
    original = build_embedder("own_transformer:transformer", 4, input_shape=(4, 4, 1))
    original.set_weights(embedder.get_weights())
    backbone_of(embedder).trainable = False
    add_adapters(embedder, 2)
    for variable in embedder.trainable_variables:
        variable.assign(rng.normal(0, 0.3, variable.shape))
    save(embedder, tmp_path / "adapters.npz")
    images = rng.uniform(0, 255, (3, 4, 4, 1)).astype("float32")
    rows = embedder.predict(images, verbose=0)
    assert np.abs(original.predict(images, verbose=0) - rows).max() > 1e-3
    load_adapters(original, tmp_path / "adapters.npz")
    np.testing.assert_allclose(original.predict(images, verbose=0), rows, atol=1e-6)
    for dim, expected in ((3, "this backbone and `embedding_dim`"), (4, "these frozen weights")):
        other = build_embedder("own_transformer:transformer", dim, input_shape=(4, 4, 1))
        with pytest.raises(ValueError, match=f"must be of {expected}"):
            load_adapters(other, tmp_path / "adapters.npz")


@pytest.mark.parametrize(
    ("memory", "rows", "flag"), [(5e4, 8, "--tune lora or head"), (4e6, 10**5, "--micro_batch")]
)
def test_what_cannot_fit_is_said_with_a_flag(memory, rows, flag, embedder, monkeypatch):
    monkeypatch.setattr(tuning, "total_memory", lambda: memory)
    embedder = build_embedder("small_cnn", 16, input_shape=(8, 8, 1))
    with pytest.raises(ValueError, match=f"a full tuning must fit in the memory, .* give {flag}"):
        tuning.check_memory(embedder, rows, copies=2)
