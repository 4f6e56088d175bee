"""Steps of the optimizers, on any backend of Keras."""

import keras
import numpy as np
import pytest

import tfdml
from tfdml import losses, optimizers
from tfdml.layers import PDDM

if keras.backend.backend() == "tensorflow":
    import tensorflow as tf

some_rows = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="gradients of some rows are TensorFlow's"
)


def variables():
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(2, name="body"), keras.layers.Dense(2, name="head")]
    )
    keras.utils.set_random_seed(0)
    for variable in model.variables:
        variable.assign(keras.random.normal(variable.shape, seed=1))
    return model.variables


@pytest.mark.parametrize(
    ("ours", "plain", "options"),
    [
        (optimizers.SGD, keras.optimizers.SGD, {"momentum": 0.9}),
        (optimizers.Adam, keras.optimizers.Adam, {}),
    ],
)
def test_equals_optimizers_with_a_rate_for_each_group_and_its_biases(ours, plain, options):
    together, apart = variables(), variables()
    scaled = ours(0.01, multipliers={"head/": 10.0}, bias_multiplier=2.0, **options)
    each = [plain(rate, **options) for rate in (0.01, 0.02, 0.1, 0.2)]
    scaled.build(together)
    for seed in range(5):
        gradients = [keras.random.normal(v.shape, seed=seed) for v in together]
        scaled.apply(gradients, together)
        for one, gradient, variable in zip(each, gradients, apart, strict=True):
            one.apply([gradient], [variable])
    for one, other in zip(together, apart, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_is_rebuilt_with_its_multipliers():
    optimizer = optimizers.Adam(0.01, multipliers={"head/": 3.0}, bias_multiplier=2.0)
    restored = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(restored) is optimizers.Adam
    assert (restored.multipliers, restored.bias_multiplier) == ({"head/": 3.0}, 2.0)


def test_rejects_patterns_that_match_nothing_or_twice():
    with pytest.raises(ValueError, match=r"Received: pattern='haed/'"):
        optimizers.SGD(multipliers={"haed/": 2.0}).build(variables())
    with pytest.raises(ValueError, match=r"at most one pattern .* path=.*head/kernel"):
        optimizers.SGD(multipliers={"head/": 2.0, "kernel": 3.0}).build(variables())
    with pytest.raises(ValueError, match=r"`multipliers\['head/'\]`.*Received"):
        optimizers.SGD(multipliers={"head/": -1.0})
    with pytest.raises(ValueError, match=r"`bias_multiplier`.*Received"):
        optimizers.SGD(bias_multiplier=-1.0)


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


def test_a_loss_that_was_called_before_is_compiled_with_its_multiplier():
    loss = losses.get("density", initial_density=[0.3, 0.3], alpha_multiplier=10)
    loss(np.array([0, 0, 1]), np.eye(3, dtype="float32"))
    inputs = keras.Input((3,))
    model = tfdml.EmbeddingModel(keras.Model(inputs, keras.layers.Dense(3)(inputs)))
    optimizer = optimizers.Adam(multipliers={"^density_targets/": 10})
    model.compile(optimizer=optimizer, loss=loss)
    assert optimizer.multiplier_at(loss.layer.targets.path) == 10


def test_the_biases_of_a_similarity_have_the_multiplier_of_biases():
    layer = PDDM(units=2)
    layer.build((None, 2))
    optimizer = optimizers.SGD(0.01, bias_multiplier=2.0)
    optimizer.build(layer.trainable_variables)
    multipliers = zip(layer.trainable_variables, optimizer._multiplier_of, strict=True)
    assert {v.name: by for v, by in multipliers} == {
        v.name: 2 if len(v.shape) == 1 else 1 for v in layer.trainable_variables
    }


@pytest.mark.parametrize("optimizer", [optimizers.SGD, optimizers.Adam])
def test_l2_spares_what_is_excluded_from_weight_decay(optimizer):
    spared, plain = variables(), variables()
    decaying = optimizer(0.1, l2=0.5)
    decaying.exclude_from_weight_decay([spared[0]])
    for each, group in ((decaying, spared), (optimizer(0.1), plain)):
        for seed in (2, 3):
            each.apply([keras.random.normal(v.shape, seed=seed) for v in group], group)
    np.testing.assert_array_equal(spared[0], plain[0])
    assert np.abs(np.array(spared[2]) - np.array(plain[2])).max() > 1e-3


@some_rows
@pytest.mark.parametrize("clip", [{}, {"clipvalue": 1e3}, {"global_clipnorm": 1e3}])
def test_the_rows_of_what_is_spared_from_l2_are_updated_alone(clip):
    table = keras.Variable(np.ones((4, 2), "float32"), name="table")
    optimizer = optimizers.SGD(0.1, l2=0.5, momentum=0.9, **clip)
    optimizer.exclude_from_weight_decay([table])
    optimizer.build([table])
    for rows in ([1, 1, 3], [0]):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table.value, rows))
        optimizer.apply(tape.gradient(loss, [table.value]), [table])
    # The momentum of rows 1 and 3 waits for their next gradient.
    np.testing.assert_allclose(table, [[0.9] * 2, [0.8] * 2, [1.0] * 2, [0.9] * 2], atol=1e-6)


@some_rows
def test_the_gradients_of_one_row_are_clipped_together():
    table = keras.Variable(np.ones((3, 2), "float32"), name="table")
    optimizer = optimizers.SGD(1.0, clipvalue=0.75)
    optimizer.build([table])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(0.5 * tf.gather(table.value, [1, 1, 2]))
    optimizer.apply(tape.gradient(loss, [table.value]), [table])
    np.testing.assert_allclose(table, [[1.0] * 2, [0.25] * 2, [0.5] * 2], atol=1e-6)


@pytest.mark.parametrize(
    ("options", "clipped"),
    [
        ({"clipvalue": 0.5}, lambda all_gradients: [g.clip(-0.5, 0.5) for g in all_gradients]),
        (
            {"global_clipnorm": 0.5},
            lambda all_gradients: [
                g * 0.5 / np.sqrt(sum((g**2).sum() for g in all_gradients)) for g in all_gradients
            ],
        ),
    ],
)
def test_gradients_are_clipped_before_multipliers_decay_and_first_steps(options, clipped, rng):
    ours = variables()
    before = [np.array(v) for v in ours]
    optimizer = optimizers.SGD(
        0.1, multipliers={"head/": 10.0}, head_steps=1, l2=0.01, bias_multiplier=2.0, **options
    )
    optimizer.build(ours)
    gradients = [rng.normal(size=v.shape).astype("float32") for v in ours]
    expected = [b.copy() for b in before]
    for step in range(2):
        optimizer.apply([keras.ops.convert_to_tensor(g) for g in gradients], ours)
        for place, (value, change) in enumerate(zip(expected, clipped(gradients), strict=True)):
            rate = 0.1 * (10.0 if place >= 2 else float(step >= 1)) * (2.0 if place % 2 else 1.0)
            value -= rate * (change + (0.0 if place % 2 else 0.01 * value))
    for one, other in zip(ours, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    config = type(optimizer).from_config(optimizer.get_config()).get_config()
    assert {name: config[name] for name in options} == options
    assert config["head_steps"] == 1
