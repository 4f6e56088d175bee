import itertools
import math

import numpy as np
import pytest

from tfdml.evaluation import distance_statistics, pair_distances, tiles
from tfdml.evaluation.pair_scores import equal_error_rate, sample_pairs


def brute_force(embeddings, labels):
    """The statistics by a loop over pairs, with sums that do not round."""
    x, kinds = embeddings.astype(np.float64), {True: [], False: []}
    for i, j in itertools.combinations(range(len(x)), 2):
        kinds[int(labels[i]) == int(labels[j])].append(math.dist(x[i], x[j]))
    mean, variance = {}, {}
    for positive, values in kinds.items():
        mean[positive] = math.fsum(values) / len(values)
        variance[positive] = math.fsum((v - mean[positive]) ** 2 for v in values) / len(values)
    return {
        "positive_mean": mean[True],
        "positive_variance": variance[True],
        "negative_mean": mean[False],
        "negative_variance": variance[False],
        "lda": (mean[False] - mean[True]) ** 2 / (variance[True] + variance[False]),
    }


def close(statistics, rel=1e-9):
    return {name: pytest.approx(value, rel=rel) for name, value in statistics.items()}


def test_two_classes_on_a_line_by_hand():
    # Positive: 1 (0 to 1) and 4 (3 to 7): mean 2.5, variance 2.25.
    # Negative: 3, 7, 2, 6: mean 4.5, variance (1.5**2 + 2.5**2 + 2.5**2 + 1.5**2) / 4 = 4.25.
    line, labels = np.array([[3.0], [0.0], [7.0], [1.0]]), np.array([5, 2, 5, 2])
    expected = [2.5, 2.25, 4.5, 4.25, 2**2 / 6.5]
    found = distance_statistics(line, labels)
    assert list(found.values()) == pytest.approx(expected, rel=1e-14)
    assert all(type(value) is float for value in found.values())


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        *((kind, "float64") for kind in ("spread", "duplicates", "far", "tiny", "huge", "tight")),
        *(("far", dtype) for dtype in ("float16", "float32")),
    ],
)
def test_equals_brute_force(kind, dtype, rng, monkeypatch):
    monkeypatch.setattr(tiles.DistanceTiles, "size", 7)
    monkeypatch.setattr(tiles, "_CHUNK_ROWS", 3)
    x = {
        "spread": rng.normal(size=(80, 6)),
        "duplicates": np.repeat(rng.normal(size=(20, 6)), 4, axis=0),
        "far": rng.normal(size=(80, 6)) + 1000,
        "tiny": rng.normal(size=(80, 6)) * 1e-4,
        "huge": rng.normal(size=(80, 6)) * 1e3,
        "tight": np.repeat(rng.normal(size=(20, 6)), 4, axis=0) + 1e-7 * rng.normal(size=(80, 6)),
    }[kind].astype(dtype)
    # Classes of 1 to 31 rows: whole ones in a block, and one of several blocks.
    labels = rng.permutation(np.repeat(np.arange(9), [31, 1, 2, 7, 8, 20, 3, 5, 3])) + 2**53
    if kind in ("duplicates", "tight"):
        labels = np.repeat(np.arange(10), 8) + 2**53
    assert distance_statistics(x, labels) == close(brute_force(x, labels))


@pytest.mark.parametrize(("size", "exact_pairs"), [(1, 2**23), (9, 0), (80, 2**23), (256, 0)])
def test_ignores_the_size_of_the_tiles(size, exact_pairs, rng, monkeypatch):
    x, labels = rng.normal(size=(80, 4)), rng.integers(0, 5, 80)
    expected = brute_force(x, labels)
    monkeypatch.setattr(pair_distances, "_EXACT_PAIRS", exact_pairs)
    monkeypatch.setattr(tiles.DistanceTiles, "size", size)
    assert distance_statistics(x, labels) == close(expected)


def test_lda_ignores_the_scale_of_the_embeddings(rng):
    x, labels = rng.normal(size=(50, 4)), rng.integers(0, 5, 50)
    expected = distance_statistics(x, labels)
    for scale in (1e-200, 1e-3, 1e150):
        scaled = distance_statistics(x * scale, labels)
        assert scaled["lda"] == pytest.approx(expected["lda"], rel=1e-12)
        assert scaled["negative_mean"] == pytest.approx(expected["negative_mean"] * scale)


def test_small_variances_do_not_cancel(rng):
    # Corners of a simplex are 2**0.5 apart, all but the noise: its variance is 1e-16 of the square.
    x = np.eye(160) + 1e-9 * rng.normal(size=(160, 160))
    labels = np.arange(160) // 2
    found = distance_statistics(x, labels)
    assert found == close(brute_force(x, labels), rel=1e-5)
    assert 1e-19 < found["negative_variance"] < 1e-17


def test_duplicates_are_at_distance_0_exactly(rng):
    x = np.repeat(rng.normal(size=(30, 16)) / 3, 4, axis=0)
    found = distance_statistics(x, np.repeat(np.arange(30), 4))
    assert (found["positive_mean"], found["positive_variance"]) == (0.0, 0.0)


def test_equal_distances_have_no_finite_lda():
    corners = np.repeat(np.array([[0.0, 1.0], [1.0, 0.0]]), 2, axis=0)
    labels = np.array([0, 0, 1, 1])
    assert distance_statistics(corners, labels)["lda"] == np.inf
    for value in (0.0, 0.1, -7e5):
        collapsed = distance_statistics(np.full((4, 3), value), labels)
        assert set(collapsed.values()) == {0.0}


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
