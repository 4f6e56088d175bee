import re

import keras
import numpy as np
import pytest
from keras import ops

from tfdml.layers import LocalResponseNormalization


def by_loops(x, depth_radius=2, alpha=1e-4, beta=0.75, bias=1.0):
    outputs = np.empty_like(x)
    for place in np.ndindex(x.shape):
        first = max(place[-1] - depth_radius, 0)
        beside = x[place[:-1]][first : place[-1] + depth_radius + 1]
        scale = bias + alpha / (2 * depth_radius + 1) * sum(beside**2)
        outputs[place] = x[place] / scale**beta
    return outputs


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"depth_radius": 1, "alpha": 2.0, "beta": 0.5, "bias": 3.0},
        {"depth_radius": 9, "alpha": 1.0},
        {"depth_radius": 0, "alpha": 0.3, "beta": -1.0},
    ],
)
def test_equals_loops_over_channels(options, rng):
    x = rng.normal(size=(2, 3, 4, 7)) * 100
    outputs = LocalResponseNormalization(**options, dtype="float64")(x)
    np.testing.assert_allclose(ops.convert_to_numpy(outputs), by_loops(x, **options), rtol=1e-9)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_computes_in_float32_under_mixed_precision(policy, rng):
    # The square of 1,000 is beyond float16.
    half = policy.removeprefix("mixed_")
    x = ops.cast(rng.uniform(500, 1000, (2, 3, 8)), half)
    outputs = LocalResponseNormalization(dtype=policy)(x)
    assert keras.backend.standardize_dtype(outputs.dtype) == half
    wide = ops.convert_to_numpy(ops.cast(x, "float32"))
    outputs = ops.convert_to_numpy(ops.cast(outputs, "float32"))
    np.testing.assert_allclose(outputs, by_loops(wide), rtol=4e-3)


def test_is_finite_where_all_channels_are_silent():
    zeros = np.zeros((1, 2, 3), "float32")
    outputs = LocalResponseNormalization()(zeros)
    np.testing.assert_array_equal(ops.convert_to_numpy(outputs), zeros)


def test_rejects_an_unknown_number_of_channels():
    message = re.escape("Received: shape=(None, 4, None)")
    with pytest.raises(ValueError, match=message):
        LocalResponseNormalization()(keras.Input((4, None)))
