import itertools
import math

import numpy as np
import pytest
from sklearn import metrics

from tfdml.evaluation import (
    calibrate_threshold,
    distance_statistics,
    pair_distances,
    rates_at_threshold,
    tiles,
    verification_curve,
    verification_scores,
)
from tfdml.evaluation.pair_scores import equal_error_rate, sample_pairs

# Positive distances 1 and 3, negative ones 4, 7, 3 and 6.
LINE, IDS = np.array([[0.0], [1.0], [4.0], [7.0]]), np.array([0, 0, 1, 1])


def distances_of_pairs(x, labels):
    """Distances of positive and of negative pairs, by a loop."""
    kinds = {True: [], False: []}
    for i, j in itertools.combinations(range(len(x)), 2):
        distance = math.dist(x[i].astype(np.float64), x[j].astype(np.float64))
        kinds[int(labels[i]) == int(labels[j])].append(distance)
    return np.array(kinds[True]), np.array(kinds[False])


def some_rows(rng, rows=120, dim=6, classes=9):
    """Noisy classes, one of them a lonely row, another of many rows, some rows twice."""
    labels = rng.integers(0, classes, rows)
    labels[:30] = 3
    x = rng.normal(size=(classes, dim))[labels] + rng.normal(size=(rows, dim))
    x[40:60] = x[60:80]
    labels[-1] = classes
    return x, labels + 2**53


@pytest.mark.parametrize(
    ("dtype", "scale", "offset"),
    [("f4", 1e-30, 0), ("f4", 1, 1000), ("f4", 1e30, 0), ("f8", 1e-200, 0), ("f8", 1e150, 0)],
)
def test_equals_loops_and_scikit_learn(dtype, scale, offset, rng, monkeypatch):
    monkeypatch.setattr(tiles.DistanceTiles, "size", 25)
    x, labels = some_rows(rng)
    x = (x * scale + offset).astype(dtype)
    positive, negative = distances_of_pairs(x, labels)
    same = np.arange(len(positive) + len(negative)) < len(positive)
    distances = np.concatenate([positive, negative])
    scores = verification_scores(x, labels, false_match_rates=(0.3, 0.1, 0.01, 5e-3))
    assert scores["auc"] == pytest.approx(metrics.roc_auc_score(same, -distances / scale), rel=1e-9)
    expected = equal_error_rate(-positive, -negative)
    assert scores["equal_error_rate"] == pytest.approx(expected, abs=1 / len(positive))
    assert 0.6 < scores["auc"] < 0.95
    for rate, threshold in scores["thresholds"].items():
        assert np.mean(negative <= threshold) <= rate
        assert np.mean(negative <= threshold * (1 + 1e-9)) > rate
        assert scores["true_match_rates"][rate] == np.mean(positive <= threshold)
        assert calibrate_threshold(x, labels, false_match_rate=rate) == threshold
    for threshold in (-1, -1e-9 * scale, 0, 2.5 * scale, float(negative[5]), np.inf):
        assert rates_at_threshold(x, labels, threshold) == {
            "false_match_rate": np.mean(negative <= threshold * (1 + 1e-12)),
            "true_match_rate": np.mean(positive <= threshold * (1 + 1e-12)),
        }
    curve = verification_curve(x, labels, points=10_000)
    false, true, _ = metrics.roc_curve(same, -distances / scale, drop_intermediate=False)
    np.testing.assert_allclose(curve["false_match_rate"], false, rtol=1e-12)
    np.testing.assert_allclose(curve["true_match_rate"], true, rtol=1e-12)
    np.testing.assert_allclose(curve["threshold"][1:], np.unique(distances), rtol=1e-9)
    means, variances = ([f(of / scale) for of in (positive, negative)] for f in (np.mean, np.var))
    lda = (means[1] - means[0]) ** 2 / sum(variances)
    pairs = [number for pair in zip(means, variances, strict=True) for number in pair]
    expected = [*np.multiply(pairs, 2 * [scale, float(scale) ** 2]), lda]
    found = distance_statistics(x, labels)
    assert list(found.values()) == pytest.approx(expected, rel=1e-9, abs=0)
    assert all(type(value) is float for value in found.values())


def test_bins_bound_their_error(rng, monkeypatch):
    monkeypatch.setattr(tiles.DistanceTiles, "size", 70)
    x, labels = some_rows(rng, rows=300)
    exact, statistics = verification_scores(x, labels), distance_statistics(x, labels)
    monkeypatch.setattr(pair_distances, "_EXACT_PAIRS", 0)
    errors = []
    for bits in (18, 10):  # the fewer, the more pairs share one
        monkeypatch.setattr(pair_distances, "_BIN_BITS", bits)
        monkeypatch.setattr(pair_distances, "_FEW_BITS", min(bits, 14))
        binned = verification_scores(x, labels)
        assert distance_statistics(x, labels) == pytest.approx(statistics, rel=1e-10)
        assert abs(binned["auc"] - exact["auc"]) <= binned["auc_error"] + 1e-12
        assert binned["equal_error_rate"] == pytest.approx(exact["equal_error_rate"], abs=2e-3)
        for rate, threshold in binned["thresholds"].items():
            assert exact["thresholds"][rate] * 0.99 < threshold <= exact["thresholds"][rate]
            rates = rates_at_threshold(x, labels, threshold)
            assert rates["true_match_rate"] == binned["true_match_rates"][rate]
            assert rates["false_match_rate"] <= rate
        errors.append(binned["auc_error"])
    assert exact["auc_error"] == 0
    assert 0 < errors[0] < errors[1] < 1e-3


def test_rates_of_a_curve_of_few_points_are_exact(rng, monkeypatch):
    monkeypatch.setattr(pair_distances, "_EXACT_PAIRS", 0)
    x, labels = some_rows(rng)
    for points in (2, 3, 20, 200):
        curve = verification_curve(x, labels, points=points)
        false, true, threshold = curve.values()
        assert points / 2 < len(false) == len(true) == len(threshold) <= points
        assert (false[0], true[0], threshold[0]) == (0, 0, -1)
        assert (false[-1], true[-1]) == (1, 1)
        for values in curve.values():
            assert (np.diff(values) >= 0).all()
        for place in range(0, len(false), 1 + len(false) // 5):
            assert rates_at_threshold(x, labels, threshold[place]) == {
                "false_match_rate": false[place],
                "true_match_rate": true[place],
            }


@pytest.mark.parametrize("exact_pairs", [0, 2**23])
@pytest.mark.parametrize("value", [0.0, -7e5])
def test_collapsed_embeddings_score_as_chance(exact_pairs, value, monkeypatch):
    monkeypatch.setattr(pair_distances, "_EXACT_PAIRS", exact_pairs)
    x, labels = np.full((20, 3), value), np.arange(20) // 4
    scores = verification_scores(x, labels, false_match_rates=[0.1])
    assert (scores["auc"], scores["auc_error"], scores["equal_error_rate"]) == (0.5, 0.0, 0.5)
    assert scores["true_match_rates"] == {0.1: 0.0}
    assert scores["thresholds"] == {0.1: -1.0}
    assert set(rates_at_threshold(x, labels, 0).values()) == {1.0}
    assert set(rates_at_threshold(x, labels, -0.0).values()) == {1.0}
    assert set(distance_statistics(x, labels).values()) == {0.0}


@pytest.mark.parametrize("exact_pairs", [0, 2**23])
@pytest.mark.parametrize("noise", [0, 0.01])
def test_perfect_embeddings_score_as_such(exact_pairs, noise, rng, monkeypatch):
    monkeypatch.setattr(pair_distances, "_EXACT_PAIRS", exact_pairs)
    labels = np.append(np.arange(60) // 3, [2**60])
    x = rng.normal(size=(21, 8))[np.append(labels[:-1], 20)] + noise * rng.normal(size=(61, 8))
    scores = verification_scores(x, labels, false_match_rates=[0, 0.1])
    assert (scores["auc"], scores["equal_error_rate"]) == (1.0, 0.0)
    assert scores["true_match_rates"] == {0: 1.0, 0.1: 1.0}


def test_distances_that_tie_but_for_rounding_match_together(rng):
    # Corners of a simplex, turned: all 2**0.5 apart, and no rounding error separates them.
    turn = np.linalg.qr(rng.normal(size=(60, 60)))[0]
    labels = np.arange(60) // 3
    scores = verification_scores(turn, labels)
    assert (scores["auc"], scores["equal_error_rate"]) == (0.5, 0.5)
    assert set(scores["true_match_rates"].values()) == {0.0}
    assert set(rates_at_threshold(turn, labels, 2**0.5).values()) == {1.0}
    threshold = calibrate_threshold(turn, labels, false_match_rate=0.5)
    assert set(rates_at_threshold(turn[::-1], labels, threshold).values()) == {0.0}


def test_distances_to_both_sides_of_a_round_number_tie():
    # Positive 1 + 1e-13, negative 1 - 1e-13 and 2: one tie, one right.
    line, labels = np.array([[0.0], [1 + 1e-13], [-1 + 1e-13]]), np.array([0, 0, 1])
    assert verification_scores(line, labels)["auc"] == 0.75
    assert set(rates_at_threshold(line, labels, 1).values()) == {0.5, 1.0}


@pytest.mark.parametrize(
    ("score", "changes", "error", "message"),
    [
        (verification_scores, {"labels": IDS * 0}, ValueError, "two classes .*rows=4, classes=1$"),
        (rates_at_threshold, {"labels": np.arange(4)}, ValueError, "two rows .*rows=4, classes=4$"),
        (verification_scores, {"false_match_rates": (0.1, 1.0)}, ValueError, "< 1. .*=1.0"),
        (verification_scores, {"false_match_rates": []}, ValueError, r"not be empty. .*=\[\]"),
        (verification_scores, {"false_match_rates": "0.1"}, TypeError, "must be a number. .*='0'"),
        (calibrate_threshold, {"false_match_rate": -0.1}, ValueError, ">= 0 and < 1. .*=-0.1"),
        (verification_curve, {"points": 1}, ValueError, "must be an integer >= 2. .*points=1"),
        (rates_at_threshold, {"threshold": np.nan}, ValueError, "must not be NaN. .*threshold=nan"),
    ],
)
def test_rejects_wrong_labels_and_options(score, changes, error, message):
    options = {"threshold": 1.0} if score is rates_at_threshold else {}
    *_, name = changes
    with pytest.raises(error, match=f"`{name}` .*{message}"):
        score(**{"embeddings": LINE, "labels": IDS, **options, **changes})


def test_small_variances_do_not_cancel(rng):
    # Corners of a simplex are 2**0.5 apart, all but the noise: its variance is 1e-16 of the square.
    x, labels = np.eye(160) + 1e-9 * rng.normal(size=(160, 160)), np.arange(160) // 2
    found, distances = distance_statistics(x, labels), distances_of_pairs(x, labels)
    for kind, values in zip(("positive", "negative"), distances, strict=True):
        assert found[f"{kind}_mean"] == pytest.approx(values.mean(), rel=1e-12)
        assert found[f"{kind}_variance"] == pytest.approx(values.var(), rel=1e-5)
    assert 1e-19 < found["negative_variance"] < 1e-17


def test_duplicates_are_at_distance_0_exactly(rng):
    x = np.repeat(rng.normal(size=(30, 16)) / 3, 4, axis=0)
    found = distance_statistics(x, np.repeat(np.arange(30), 4))
    assert (found["positive_mean"], found["positive_variance"]) == (0.0, 0.0)
    assert distance_statistics(np.repeat(np.eye(2), 2, axis=0), IDS)["lda"] == np.inf


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


@pytest.mark.parametrize(
    ("positive", "negative", "expected"),
    [
        ([1.0, 2.0], [3.0, 4.0], 1.0),
        ([5.0, 5.0, 5.0], [5.0], 0.5),
        # At 3: 1 of 2 missed, 1 of 3 accepted; at 2: none missed, 2 of 3 accepted.
        ([2.0, 4.0], [1.0, 2.0, 3.0], (1 / 2 + 1 / 3) / 2),
    ],
)
def test_equal_error_rate_by_hand(positive, negative, expected):
    assert equal_error_rate(positive, negative) == pytest.approx(expected)
