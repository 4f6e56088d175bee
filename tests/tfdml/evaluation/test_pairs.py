import re

import numpy as np
import pytest
from sklearn.metrics import roc_curve

from tfdml.evaluation.pairs import equal_error_rate, sample_pairs


def test_every_pair_of_its_kind_is_as_likely():
    labels = np.array([2**60, 7, 2**60, 7, 7, 9])
    positive, negative = sample_pairs(labels, 40_000)
    for pairs, same, kinds in ((positive, True, 4), (negative, False, 11)):
        assert pairs.shape == (40_000, 2)
        assert ((labels[pairs[:, 0]] == labels[pairs[:, 1]]) == same).all()
        assert (pairs[:, 0] != pairs[:, 1]).all()
        counts = np.unique(np.sort(pairs, axis=1), axis=0, return_counts=True)[1]
        # Standard deviation: below sqrt(40,000 / 4) = 100; the seed is fixed.
        assert len(counts) == kinds
        np.testing.assert_allclose(counts, 40_000 / kinds, atol=300)


def test_pairs_follow_their_seed(rng):
    labels = rng.integers(0, 9, 100)
    one, same, other = (np.stack(sample_pairs(labels, 20, seed=seed)) for seed in (1, 1, 2))
    assert (one == same).all()
    assert (one != other).any()


@pytest.mark.parametrize("labels", [np.arange(5), np.zeros(5, int), np.array([3])])
def test_rejects_labels_without_pairs_of_both_kinds(labels):
    with pytest.raises(ValueError, match="`labels` must hold two classes or more, and two rows"):
        sample_pairs(labels, 5)


@pytest.mark.parametrize("options", [{"count": 0}, {"count": 5, "seed": -1}])
def test_rejects_wrong_options(options):
    with pytest.raises(ValueError, match="must be an integer >="):
        sample_pairs(np.array([0, 0, 1]), **options)


@pytest.mark.parametrize(
    ("positive", "negative", "expected"),
    [
        ([3.0, 4.0], [1.0, 2.0], 0.0),
        ([1.0, 2.0], [3.0, 4.0], 1.0),
        ([5.0, 5.0, 5.0], [5.0], 0.5),
        # At 3: 1 of 2 missed, 1 of 3 accepted; at 2: none missed, 2 of 3 accepted.
        ([2.0, 4.0], [1.0, 2.0, 3.0], (1 / 2 + 1 / 3) / 2),
    ],
)
def test_equal_error_rate_by_hand(positive, negative, expected):
    assert equal_error_rate(positive, negative) == pytest.approx(expected)


def test_equal_error_rate_equals_scikit_learns_curve(rng):
    positive, negative = rng.normal(1, 1, 60_000), rng.normal(size=40_000)
    scores = np.concatenate([positive, negative])
    false, true, _ = roc_curve(np.arange(100_000) < 60_000, scores, drop_intermediate=False)
    nearest = np.argmin(np.abs(1 - true - false))
    expected = (1 - true[nearest] + false[nearest]) / 2
    # Two thresholds may be as near: they differ by a pair.
    assert equal_error_rate(positive, negative) == pytest.approx(expected, abs=1 / 40_000)
    assert expected == pytest.approx(0.3085, abs=0.01)  # unit normals, half of 1 apart


@pytest.mark.parametrize("scores", [[], 1.0, [[1.0]]])
def test_rejects_scores_of_another_shape(scores):
    message = re.escape(f"must be scores of shape (n,), n >= 1. Received: shape={np.shape(scores)}")
    with pytest.raises(ValueError, match=f"^`positive` {message}$"):
        equal_error_rate(scores, [1.0])
    with pytest.raises(ValueError, match=f"^`negative` {message}$"):
        equal_error_rate([1.0], scores)


def test_rejects_scores_that_are_not_finite():
    message = "must be finite. Received: scores_not_finite=2, first=1$"
    with pytest.raises(ValueError, match=f"^`negative` {message}"):
        equal_error_rate([1.0], [0.0, np.nan, np.inf])


def test_takes_labels_as_a_column(rng):
    labels = rng.integers(0, 9, 100)
    np.testing.assert_array_equal(sample_pairs(labels[:, None], 20), sample_pairs(labels, 20))


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        (np.zeros((4, 2), int), ValueError, "shape (n,) or (n, 1); convert one-hot rows"),
        (np.zeros(4), TypeError, "`labels` must be integers. Received: dtype=float64"),
    ],
)
def test_rejects_labels_that_are_none(labels, error, message):
    with pytest.raises(error, match=re.escape(message)):
        sample_pairs(labels, 5)
