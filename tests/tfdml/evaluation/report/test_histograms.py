import itertools

import numpy as np
import pytest

from tfdml.evaluation.report import histograms
from tfdml.evaluation.report.histograms import distance_histograms


def distances_by_kind(x, labels):
    kinds = {True: [], False: []}
    for i, j in itertools.combinations(range(len(x)), 2):
        kinds[bool(labels[i] == labels[j])].append(np.linalg.norm(x[i] - x[j]))
    return np.array(kinds[True]), np.array(kinds[False])


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_counts_all_pairs(scale, rng):
    labels = rng.integers(0, 5, 70) + 2**41
    x = rng.normal(size=(70, 3))
    found = distance_histograms(x * scale, labels)
    positive, negative = distances_by_kind(x, labels)
    assert found.sample is None
    assert (found.positive_pairs, found.negative_pairs) == (len(positive), len(negative))
    np.testing.assert_allclose(found.positive_mean / scale, positive.mean(), rtol=1e-9)
    np.testing.assert_allclose(found.negative_mean / scale, negative.mean(), rtol=1e-9)
    edges = found.edges / scale
    assert 30 < len(edges) - 1 <= 60
    both = np.concatenate([positive, negative])
    assert edges[0] <= both.min() < edges[1]
    assert edges[-2] <= both.max() < edges[-1]
    for shares, values in ((found.positive, positive), (found.negative, negative)):
        np.testing.assert_allclose(shares, np.histogram(values, edges)[0] / len(values), atol=1e-12)


def test_draws_a_sample_of_too_many_pairs(rng, monkeypatch):
    monkeypatch.setattr(histograms, "_MOST_PAIRS", 2000)
    monkeypatch.setattr(histograms, "_SAMPLE", 50_000)
    labels = rng.integers(0, 5, 70)
    x = rng.normal(size=(70, 3)) + labels[:, None]
    positive, negative = distances_by_kind(x, labels)
    found = distance_histograms(x, labels)
    assert found.sample == 50_000
    assert found.positive_pairs == len(positive)
    assert found.negative_pairs == len(negative)
    for shares, mean, values in (
        (found.positive, found.positive_mean, positive),
        (found.negative, found.negative_mean, negative),
    ):
        assert abs(mean - values.mean()) < 5 * values.std() / 50_000**0.5
        np.testing.assert_allclose(
            shares, np.histogram(values, found.edges)[0] / len(values), atol=0.01
        )


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_of_collapsed_embeddings_is_one_bin(value):
    found = distance_histograms(np.full((4, 2), value), np.array([0, 0, 1, 1]))
    assert found.positive.tolist() == found.negative.tolist() == [1.0]
    assert found.positive_mean == found.negative_mean == 0
    assert found.edges[0] == 0 < found.edges[1]
