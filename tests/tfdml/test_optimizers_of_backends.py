"""Steps of the optimizers on any backend of Keras."""

import keras
import numpy as np
import pytest
from keras import ops

from tfdml import optimizers


@pytest.mark.parametrize(
    ("ours", "plain"),
    [(optimizers.SGD, keras.optimizers.SGD), (optimizers.Adam, keras.optimizers.Adam)],
)
def test_a_step_is_that_of_keras_at_the_multiplied_rate(ours, plain, rng):
    start, gradient = rng.normal(size=(2, 3, 4)).astype("float32")
    together, apart = (
        [keras.Variable(start, name=name) for name in ("body", "head")] for _ in range(2)
    )
    ours(0.01, multipliers={"^head": 10.0}, clipnorm=1.0).apply([ops.array(gradient)] * 2, together)
    for rate, variable in zip((0.01, 0.1), apart, strict=True):
        plain(rate, clipnorm=1.0).apply([ops.array(gradient)], [variable])
    for mine, theirs in zip(together, apart, strict=True):
        expected = ops.convert_to_numpy(theirs)
        np.testing.assert_allclose(ops.convert_to_numpy(mine), expected, rtol=1e-6)
        assert np.all(expected != start)
