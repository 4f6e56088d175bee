import itertools
import re

import keras
import numpy as np
import pytest
from keras import ops

from tfdml.layers import PDDM
from tfdml.layers.pddm import _PAIRS_AT_ONCE


def array(tensor):
    return ops.convert_to_numpy(tensor)


@pytest.mark.parametrize("training", [False, True])
def test_is_symmetric(training, rng):
    a, b = rng.normal(size=(2, 6, 5)).astype("float32")
    np.testing.assert_allclose(
        array(PDDM(seed=0)(a, b, training=training)),
        array(PDDM(seed=0)(b, a, training=training)),
        rtol=1e-6,
    )


@pytest.mark.parametrize("count", [5, 200])
def test_matrix_scores_every_pair_once(count, rng, monkeypatch):
    rows = rng.normal(size=(count, 3)).astype("float32")
    layer = PDDM(seed=0)
    expected = array(layer(np.repeat(rows, count, axis=0), np.tile(rows, (count, 1))))
    asked, largest = [], []
    score = layer.score

    def counting(ends, a, b):
        asked.append(np.stack([array(a), array(b)], axis=1))
        largest.append(len(asked[-1]))
        return score(ends, a, b)

    traced = keras.backend.backend() == "jax" and count * (count + 1) > 2 * _PAIRS_AT_ONCE
    if not traced:
        monkeypatch.setattr(layer, "score", counting)
    matrix = array(layer.matrix(rows))
    np.testing.assert_allclose(matrix, expected.reshape(count, count), rtol=1e-5, atol=1e-6)
    assert (matrix == matrix.T).all()
    assert max(largest, default=0) <= _PAIRS_AT_ONCE
    if count * (count + 1) // 2 <= _PAIRS_AT_ONCE:
        pairs = np.sort(np.concatenate(asked), axis=1)
        assert len(np.unique(pairs, axis=0)) == len(pairs) == count * (count + 1) // 2


def test_matrix_of_two_sets(rng):
    a, b = rng.normal(size=(70, 3)).astype("float32"), rng.normal(size=(150, 3)).astype("float32")
    layer = PDDM(seed=0)
    expected = array(layer(np.repeat(a, 150, axis=0), np.tile(b, (70, 1))))
    np.testing.assert_allclose(
        array(layer.matrix(a, b)), expected.reshape(70, 150), rtol=1e-5, atol=1e-6
    )


def test_dropout_is_independent_from_pair_to_pair(rng):
    layer = PDDM(units=2000, dropout=0.3, seed=0)
    noise = array(layer.ends(rng.normal(size=(3, 4)), drop=True).noise).astype("int64")
    dropped = []
    for i, j in ((0, 1), (0, 2), (1, 2)):
        for digit in (1, 1024, 1024**2):
            dropped.append((noise[i] + noise[j]) // digit % 1024 < round(0.3 * 1024))
    np.testing.assert_allclose(np.mean(dropped, axis=1), 0.3, atol=0.04)
    for one, other in itertools.combinations(range(9), 2):
        both = np.mean(dropped[one] & dropped[other])
        np.testing.assert_allclose(both, 0.3**2, atol=0.025)


def test_dropout_acts_in_training_alone_and_keeps_the_mean(rng):
    a, b = rng.normal(size=(2, 4, 64)).astype("float32")
    layer = PDDM(use_position=False, dropout=0.1, seed=0)
    still = array(layer(a, b))
    assert (array(layer(a, b)) == still).all()
    drawn = array(layer(np.tile(a, (400, 1)), np.tile(b, (400, 1)), training=True)).reshape(400, 4)
    assert (drawn.std(axis=0) > 0).all()
    np.testing.assert_allclose(drawn.mean(axis=0), still, atol=0.05)


@pytest.mark.parametrize(
    ("shape_a", "shape_b", "message"),
    [
        ((4, 3), (4, 2), "with the same dim. Received: a.shape=(4, 3), b.shape=(4, 2)"),
        ((4, 3), (1, 3), "Received: a.shape=(4, 3), b.shape=(1, 3)"),
        ((4, 2), None, "embeddings must be (n, 3). Received: shape[1:]=(2,)"),
        ((3,), None, "embeddings must be (n, 3). Received: shape[1:]=()"),
        ((2, 4, 3), None, "embeddings must be (n, 3). Received: shape[1:]=(4, 3)"),
    ],
)
def test_rejects_rows_that_do_not_fit_each_other_or_its_weights(shape_a, shape_b, message):
    layer, a = PDDM(), np.zeros(shape_a, "float32")
    layer.build((None, 3))
    with pytest.raises(ValueError, match=re.escape(message)):
        layer.matrix(a) if shape_b is None else layer(a, np.zeros(shape_b, "float32"))
    if len(shape_a) != 2:
        message = re.escape(f"embeddings must be (n, dim). Received: shape={shape_a}")
        with pytest.raises(ValueError, match=f"^{message}$"):
            PDDM().matrix(a)


def test_a_matrix_of_no_rows_keeps_its_shape(rng):
    layer, rows = PDDM(seed=0), rng.normal(size=(5, 3)).astype("float32")
    assert layer.matrix(rows, rows[:0]).shape == (5, 0)
    assert layer.matrix(rows[:0], rows).shape == (0, 5)
