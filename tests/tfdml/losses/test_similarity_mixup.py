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
