"""Virtual rows of `RecallAtKLoss(mix=m)`: each a mixture of two rows of one class."""

import itertools

import keras
import numpy as np
import oracles
import pytest
from backend import DOUBLE, value_and_gradient
from keras import ops

from tfdml import losses

OPTIONS = {"k": (1, 2, 4), "rank_temperature": 0.2}
LAYOUTS = {
    "equal": [0, 0, 0, 0, 1, 1, 1, 1],
    "mixed up": [7, 3, 3, 7, 3, 7, 3, 7],
    "uneven": [0, 0, 0, 1, 1, 2, 2, 3],
    "one pair": [5, 5],
}


class Shares(keras.layers.Layer):
    """Shares that are drawn, as given: the first numbers for the first pairs."""

    def __init__(self, given):
        super().__init__()
        self.given, self.built = given, True

    def uniform(self, shape, dtype):
        return ops.cast(ops.convert_to_tensor(self.given[: shape[0]]), dtype)


def in_training(shares, mix=4, **options):
    loss = losses.get("recall_at_k", mix=mix, **{**OPTIONS, **options})
    loss.layer = Shares(shares)

    def value_of(labels, embeddings):
        return loss(labels, embeddings, training=True)

    return value_of


def with_virtual_rows(labels, x, shares):
    x = oracles.unit(x)
    pairs = [(i, j) for i, j in itertools.combinations(range(len(x)), 2) if labels[i] == labels[j]]
    mixed = [a * x[i] + (1 - a) * x[j] for a, (i, j) in zip(shares, pairs, strict=False)]
    return [*labels, *(labels[i] for i, _ in pairs)], np.concatenate([x, mixed])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rank_self", [False, True])
def test_equals_a_loop_over_rows_and_virtual_rows(layout, rank_self, rng):
    labels, shares = LAYOUTS[layout], rng.uniform(size=20)
    x = rng.normal(size=(len(labels), 5))

    plain = losses.get("recall_at_k", normalize=False, rank_self=rank_self, **OPTIONS)

    def expected(x):
        return oracles.value(plain, *with_virtual_rows(labels, x, shares))

    loss = in_training(shares, rank_self=rank_self)
    value, gradient = value_and_gradient(loss, np.array(labels), x)
    np.testing.assert_allclose(value, expected(x), rtol=DOUBLE)
    move = 1e-6 * rng.normal(size=x.shape)
    difference = expected(x + move) - expected(x - move)
    np.testing.assert_allclose((gradient * move).sum(), difference / 2, rtol=1e-5, atol=1e-13)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_share_of_0_or_1_repeats_rows(share, rng):
    labels, x = np.array([0, 0, 1, 1, 2]), rng.normal(size=(5, 4))
    repeated = [1, 3] if share == 0 else [0, 2]
    order = [*range(5), *repeated]
    plain = losses.get("recall_at_k", **OPTIONS)
    expected = oracles.value(plain, labels[order], x[order])
    value = float(in_training(np.full(9, share))(labels, x))
    np.testing.assert_allclose(value, expected, rtol=DOUBLE)


def test_places_that_no_pair_uses_change_nothing(rng):
    labels, x, shares = np.array(LAYOUTS["uneven"]), rng.normal(size=(8, 5)), rng.uniform(size=99)
    values = [float(in_training(shares, mix)(labels, x)) for mix in (3, 4, 9, 20)]
    np.testing.assert_allclose(values, values[0], rtol=1e-12)


def test_without_a_pair_the_loss_is_0(rng):
    x = rng.normal(size=(3, 4))
    assert float(in_training(np.ones(9))(np.arange(3), x)) == 0
    assert float(in_training(np.ones(9))(np.arange(1), x[:1])) == 0


def test_rows_are_mixed_in_training_only_and_anew_each_time(rng):
    labels, x = np.array(LAYOUTS["equal"]), rng.normal(size=(8, 5))
    plain, mixed, same, other = (
        losses.get("recall_at_k", **OPTIONS, **options)
        for options in ({}, {"mix": 4}, {"mix": 4}, {"mix": 4, "seed": 1})
    )
    assert float(mixed(labels, x)) == float(plain(labels, x)) == float(plain(labels, x, None, True))
    first, second = (float(mixed(labels, x, training=True)) for _ in range(2))
    assert len({first, second, float(plain(labels, x))}) == 3
    assert float(same(labels, x, training=True)) == first
    assert float(other(labels, x, training=True)) != first
    config = keras.losses.serialize(mixed)
    assert float(keras.losses.deserialize(config)(labels, x, training=True)) == first


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="trains by TensorFlow")
@pytest.mark.parametrize("inside", [None, "memory"])
def test_a_resumed_run_draws_the_same_shares(inside, rng, tmp_path):
    import tfdml

    def model():
        keras.utils.set_random_seed(0)
        built = tfdml.EmbeddingModel(keras.Sequential([keras.Input((6,)), keras.layers.Dense(4)]))
        loss = {"name": "recall_at_k", "mix": 2, **OPTIONS}
        loss = {"name": "memory", "base": loss, "size": 8} if inside else loss
        built.compile("adam", loss, run_eagerly=True)
        return built

    x, labels = rng.normal(size=(8, 6)).astype("float32"), np.repeat([0, 1, 2, 3], 2)
    whole, halves = model(), model()
    for _ in range(3):
        whole.train_on_batch(x, labels)
    for _ in range(2):
        halves.train_on_batch(x, labels)
    halves.save(tmp_path / "model.keras")
    resumed = keras.models.load_model(tmp_path / "model.keras")
    halves.loss.layers[0].load_own_variables({"state": np.array([9, 9], "uint32")})
    resumed.train_on_batch(x, labels)
    halves.train_on_batch(x, labels)
    kernel, same, other = (model.embedder.get_weights()[0] for model in (whole, resumed, halves))
    np.testing.assert_allclose(same, kernel, atol=1e-6)
    assert np.abs(other - kernel).max() > 1e-5
