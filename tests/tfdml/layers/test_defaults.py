"""Defaults of layers, which trained models rely on."""

import inspect

import pytest

from tfdml import layers

DEFAULTS = {
    layers.DensityTargets: {"start": 0.5, "learning_rate_multiplier": 1.0},
    layers.LocalResponseNormalization: {
        "depth_radius": 2,
        "alpha": 1e-4,
        "beta": 0.75,
        "bias": 1.0,
    },
    layers.PDDM: {
        "units": None,
        "use_position": True,
        "dropout": 0.5,
        "difference_bias": 0.0,
        "seed": None,
    },
}


@pytest.mark.parametrize("layer", DEFAULTS, ids=lambda each: each.__name__)
def test_defaults_are_those_of_the_contract(layer):
    parameters = inspect.signature(layer).parameters.values()
    given = {each.name: each.default for each in parameters if each.default is not each.empty}
    assert {name: value for name, value in given.items() if name != "name"} == DEFAULTS[layer]
