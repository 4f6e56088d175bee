import collections

import numpy as np

from tfdml.evaluation.page import classes
from tfdml.evaluation.page.classes import class_means, confusions


def test_averages_by_class(rng):
    ids, values = np.concatenate([np.arange(6), rng.integers(0, 6, 40)]), rng.uniform(size=46)
    expected = [
        np.mean([value for value, of in zip(values, ids, strict=True) if of == one])
        for one in range(6)
    ]
    np.testing.assert_allclose(class_means(ids, values), expected, rtol=1e-12)


def test_counts_the_classes_taken_for_others(rng):
    ids, nearest = rng.integers(0, 4, 200), rng.integers(0, 4, 200)
    pairs = collections.Counter(
        (a, b) for a, b in zip(ids.tolist(), nearest.tolist(), strict=True) if a != b
    )
    expected = sorted(([a, b, n] for (a, b), n in pairs.items()), key=lambda c: (-c[2], c[0], c[1]))
    assert len(expected) == 12
    assert confusions(ids, nearest) == expected


def test_keeps_the_commonest_and_none_where_there_are_none(monkeypatch):
    monkeypatch.setattr(classes, "_MOST_CONFUSIONS", 1)
    assert confusions(np.array([0, 1, 1, 2]), np.array([1, 0, 0, 2])) == [[1, 0, 2]]
    assert confusions(np.array([0, 1]), np.array([0, 1])) == []
