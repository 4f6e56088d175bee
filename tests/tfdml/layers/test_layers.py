"""What every layer promises: its defaults, what it rejects, and that it is saved in a model."""

import inspect
import re

import keras
import numpy as np
import pytest
from keras import ops

from tfdml import layers


@pytest.mark.parametrize(
    ("layer", "options"),
    [
        ("LocalResponseNormalization", "depth_radius=2, alpha=0.0001, beta=0.75, bias=1.0"),
        ("PDDM", "units=None, use_position=True, dropout=0.5, seed=None, difference_bias=0.0"),
    ],
)
def test_defaults_are_those_of_the_contract(layer, options):
    assert str(inspect.signature(getattr(layers, layer))) == f"({options}, **kwargs)"


@pytest.mark.parametrize(
    "layer",
    [
        layers.ClassProxies(np.int64(3), centers=np.int64(2), learning_rate_multiplier=2.0),
        layers.ClassSampler(np.int64(4)),
        layers.DensityTargets(np.int64(3), start=np.float32(0.25), learning_rate_multiplier=10.0),
        layers.Draws(np.int64(4)),
        layers.EmbeddingMemory(np.int64(8)),
        layers.LocalResponseNormalization(np.int64(1), beta=np.float32(0.5)),
        layers.PDDM(units=np.int64(4), dropout=np.float32(0.5), seed=np.int64(3)),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_keeps_numpy_scalars_as_plain_numbers_and_is_rebuilt_from_its_config(layer):
    config = layer.get_config()
    assert not any(isinstance(value, np.generic) for value in config.values())
    assert {*inspect.signature(type(layer)).parameters} - {"kwargs"} <= {*config}
    assert type(layer).from_config(config).get_config() == config


@pytest.mark.parametrize("name", ["ClassProxies", "DensityTargets", "EmbeddingMemory", "PDDM"])
def test_computes_in_float32_under_any_policy(name):
    keras.config.set_dtype_policy("mixed_float16")
    try:
        assert getattr(layers, name)(4).dtype_policy.name == "float32"
    finally:
        keras.config.set_dtype_policy("float32")


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (layers.FusedBatchNormalization(momentum=0.5), (4, 4, 3)),
        (layers.GroupedConv2D(6, 3, groups=2), (4, 4, 4)),
        (layers.LocalResponseNormalization(1, alpha=0.5, beta=0.25, bias=2.0), (3, 3, 5)),
        (layers.PDDM(units=3, use_position=False, dropout=0.2), (6,)),
        (layers.UnitLength(), (4,)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_is_saved_in_a_model(layer, shape, rng, tmp_path):
    inputs = [keras.Input(shape)] * (2 if isinstance(layer, layers.PDDM) else 1)
    model = keras.Model(inputs[0], layer(*inputs))
    x = rng.normal(size=(2, *shape)).astype("float32")
    model(x, training=True)
    model.save(tmp_path / "model.keras")
    restored = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(*(ops.convert_to_numpy(each(x)) for each in (restored, model)))
    assert type(restored.layers[-1]) is type(layer)
    assert restored.layers[-1].get_config() == layer.get_config()


@pytest.mark.parametrize(
    ("layer", "options", "error"),
    [
        ("DensityTargets", {"num_classes": 0}, ValueError),
        ("DensityTargets", {"start": np.inf, "num_classes": 2}, ValueError),
        ("DensityTargets", {"learning_rate_multiplier": -1, "num_classes": 2}, ValueError),
        ("LocalResponseNormalization", {"depth_radius": -1}, ValueError),
        ("LocalResponseNormalization", {"alpha": -1.0}, ValueError),
        ("LocalResponseNormalization", {"beta": np.inf}, ValueError),
        ("LocalResponseNormalization", {"bias": 0}, ValueError),
        ("PDDM", {"units": 0}, ValueError),
        ("PDDM", {"dropout": 1.0}, ValueError),
        ("PDDM", {"use_position": "no"}, TypeError),
        ("PDDM", {"seed": 1.5}, TypeError),
        ("PDDM", {"dtype": "float16"}, ValueError),
        ("PDDM", {"dtype": "mixed_float16"}, ValueError),
    ],
)
def test_rejects_wrong_options(layer, options, error):
    [(name, value), *_] = options.items()
    with pytest.raises(error, match=re.escape(f"`{name}`") + f".*Received: {name}={value!r}"):
        getattr(layers, layer)(**options)


def test_density_targets_are_those_of_each_class():
    layer = layers.DensityTargets(3, start=0.25)
    assert ops.convert_to_numpy(layer(np.array([2, 0]))).tolist() == [0.25, 0.25]
    layer.targets.assign([1.0, 2.0, 3.0])
    found = ops.convert_to_numpy(layer(np.array([2, 0, 3, -1])))
    np.testing.assert_array_equal(found, [3, 1, np.nan, np.nan])


def test_every_row_of_the_last_axis_has_unit_length(rng):
    rows = rng.normal(size=(2, 3, 4)).astype("float32")
    expected = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    np.testing.assert_allclose(ops.convert_to_numpy(layers.UnitLength()(rows)), expected, atol=1e-6)
