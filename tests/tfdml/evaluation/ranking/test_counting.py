import numpy as np
import pytest

from tfdml.evaluation.ranking import counting


@pytest.mark.parametrize("columns", [10, 61, 1000])
@pytest.mark.parametrize("least_group", [1, 8])
def test_counts_the_largest_scores(columns, least_group, rng, monkeypatch):
    monkeypatch.setattr(counting, "_LEAST_GROUP", least_group)
    scores = rng.integers(0, 50, size=(9, columns)).astype("float32")
    scores[rng.random(scores.shape) < 0.1] = -np.inf
    query = np.repeat(np.arange(9), 3)
    low = rng.integers(0, 50, len(query)).astype("float32")
    high = low + 1
    for count in (1, 3, 10):
        of = np.sort(scores, axis=1)[query, -count:]
        expected = (of > high[:, None]).sum(axis=1), (of >= low[:, None]).sum(axis=1)
        counts = counting.counts_in_top(scores, query, low, high, count)
        np.testing.assert_array_equal(counts, expected)
