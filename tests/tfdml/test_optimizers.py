import keras
import numpy as np
import pytest
import tensorflow as tf

from tfdml import optimizers


def variables():
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(2, name="body"), keras.layers.Dense(2, name="head")]
    )
    keras.utils.set_random_seed(0)
    for variable in model.variables:
        variable.assign(keras.random.normal(variable.shape, seed=1))
    return model.variables


@pytest.mark.parametrize(
    ("ours", "plain"),
    [(optimizers.SGD, keras.optimizers.SGD), (optimizers.Adam, keras.optimizers.Adam)],
)
@pytest.mark.parametrize("compiled", [False, True])
def test_equals_two_optimizers_with_two_rates(ours, plain, compiled):
    options = {"momentum": 0.9} if plain is keras.optimizers.SGD else {}
    together, apart = variables(), variables()
    optimizer = ours(0.01, multipliers={"head/": 10.0}, **options)
    body, head = plain(0.01, **options), plain(0.1, **options)
    optimizer.build(together)

    def step(gradients):
        optimizer.apply(gradients, together)

    step = tf.function(step) if compiled else step
    for seed in range(5):
        gradients = [keras.random.normal(v.shape, seed=seed) for v in together]
        step(gradients)
        body.apply(gradients[:2], apart[:2])
        head.apply(gradients[2:], apart[2:])
    for one, other in zip(together, apart, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_is_rebuilt_with_its_multipliers():
    optimizer = optimizers.Adam(0.01, multipliers={"head/": 3.0})
    restored = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(restored) is optimizers.Adam
    assert restored.multipliers == {"head/": 3.0}


def test_refuses_patterns_that_match_nothing_or_twice():
    with pytest.raises(
        ValueError, match=r"must match a variable's path. Received: pattern='haed/'"
    ):
        optimizers.SGD(multipliers={"haed/": 2.0}).build(variables())
    with pytest.raises(ValueError, match=r"at most one pattern .* path=.*head/kernel"):
        optimizers.SGD(multipliers={"head/": 2.0, "kernel": 3.0}).build(variables())
    with pytest.raises(ValueError, match=r"`multipliers\['head/'\]` must be >= 0"):
        optimizers.SGD(multipliers={"head/": -1.0})
