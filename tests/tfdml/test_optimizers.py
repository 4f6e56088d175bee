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


def test_rejects_patterns_that_match_nothing_or_twice():
    with pytest.raises(ValueError, match=r"Received: pattern='haed/'"):
        optimizers.SGD(multipliers={"haed/": 2.0}).build(variables())
    with pytest.raises(ValueError, match=r"at most one pattern .* path=.*head/kernel"):
        optimizers.SGD(multipliers={"head/": 2.0, "kernel": 3.0}).build(variables())
    with pytest.raises(ValueError, match=r"`multipliers\['head/'\]`.*Received"):
        optimizers.SGD(multipliers={"head/": -1.0})


@pytest.mark.parametrize("optimizer", [optimizers.SGD, optimizers.Adam])
def test_l2_is_the_gradient_of_half_the_squared_norm_of_the_kernels(optimizer, rng):
    values = [rng.normal(size=(3, 2)).astype("float32"), rng.normal(size=2).astype("float32")]
    gradients = [rng.normal(size=v.shape).astype("float32") for v in values]
    results = []
    for l2 in (0.01, 0.0):
        kernel, bias = (keras.Variable(v, name=n) for v, n in zip(values, "ab", strict=True))
        kernel_gradient = gradients[0] if l2 else gradients[0] + 0.01 * values[0]
        shrinking = optimizer(0.1, l2=l2, multipliers={"a": 2.0})
        shrinking.apply(
            [keras.ops.convert_to_tensor(kernel_gradient), gradients[1]], [kernel, bias]
        )
        assert type(shrinking).from_config(shrinking.get_config()).l2 == l2
        results.append([np.array(kernel), np.array(bias)])
    np.testing.assert_allclose(results[0][0], results[1][0], atol=1e-6)
    np.testing.assert_array_equal(results[0][1], results[1][1])


@pytest.mark.parametrize("optimizer", [optimizers.SGD, optimizers.Adam])
def test_biases_have_a_multiplier_on_top_of_that_of_their_group(optimizer):
    ours, expected = variables(), variables()
    scaled = optimizer(0.01, multipliers={"head/": 10.0}, bias_multiplier=2.0)
    plain = [optimizer(rate) for rate in (0.01, 0.02, 0.1, 0.2)]
    scaled.build(ours)
    for seed in range(3):
        gradients = [keras.random.normal(v.shape, seed=seed) for v in ours]
        scaled.apply(gradients, ours)
        for one, gradient, variable in zip(plain, gradients, expected, strict=True):
            one.apply([gradient], [variable])
    for one, other in zip(ours, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert optimizer.from_config(scaled.get_config()).bias_multiplier == 2.0
    with pytest.raises(ValueError, match=r"`bias_multiplier`.*Received"):
        optimizer(bias_multiplier=-1.0)
