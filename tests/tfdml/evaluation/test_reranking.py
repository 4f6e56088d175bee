import warnings

import numpy as np
import pytest
from ranking_loops import uneven_labels

from tfdml.evaluation import (
    exact_and_reranked_recall,
    recall_after_reranking,
    reranked_neighbours,
    reranking,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*have no other row")


def brute_force(x, labels, k, table, candidates, gallery=None, gallery_labels=None):
    """Reranking as loops; both orders break ties against the query."""
    own = gallery is None
    gallery, gallery_labels = (x, labels) if own else (gallery, gallery_labels)
    hits = dict.fromkeys(k, 0)
    for q in range(len(x)):
        near = sorted(
            (float(np.sum((gallery[j] - x[q]) ** 2)), bool(gallery_labels[j] == labels[q]), j)
            for j in range(len(gallery))
            if not (own and j == q)
        )[:candidates]
        ranked = sorted((-float(table[q, j]), relevant) for _, relevant, j in near)
        for count in k:
            hits[count] += any(relevant for _, relevant in ranked[:count])
    return {count: hits[count] / len(x) for count in k}


def looked_up(table):
    """A similarity that reads a table; the first coordinates, too small to matter, say where."""

    def scores(a, b):
        assert len(a) == len(b) <= reranking._PAIRS_AT_ONCE
        a, b = (np.rint(1e9 * of[:, 0]).astype(int) for of in (a, b))
        return table[a, b]

    return scores


def placed(rng, count):
    """(n, 4) rows with their place in a table."""
    return np.concatenate([1e-9 * np.arange(count)[:, None], rng.normal(size=(count, 3))], axis=1)


@pytest.mark.parametrize(
    ("in_gallery", "scores", "pairs", "candidates"),
    [
        (False, 10**9, 13, 100),
        (True, 3, 13, 100),
        (False, 3, 8192, 2**20),  # many ties
        (True, 10**9, 8192, 2**20),
        (False, 1, 13, 100),
    ],
)
def test_equals_brute_force(in_gallery, scores, pairs, candidates, rng, monkeypatch):
    monkeypatch.setattr(reranking, "_PAIRS_AT_ONCE", pairs)
    monkeypatch.setattr(reranking, "_CANDIDATES_AT_ONCE", candidates)
    table = rng.integers(0, scores, (60, 60)) / 7
    x, labels = placed(rng, 60), uneven_labels(rng)
    gallery = (placed(rng, 60), uneven_labels(rng)) if in_gallery else ()
    named = dict(zip(("gallery_embeddings", "gallery_labels"), gallery, strict=False))
    for k, candidates in [((1, 2, 5), 5), ((3,), 20), ((1, 59), 59)]:
        options = {"candidates": candidates, "similarity": looked_up(table), **named}
        expected = brute_force(x, labels, k, table, candidates, *gallery)
        assert recall_after_reranking(x, labels, k, **options) == expected
    exact, reranked = exact_and_reranked_recall(x, labels, k, **options)
    assert exact == brute_force(x, labels, k, table, 60, *gallery)
    assert reranked == expected


def test_a_sample_is_asked_exactly_and_after_reranking(rng):
    x, labels = rng.normal(size=(80, 3)), rng.integers(0, 9, 80)
    options = {"k": (1, 3), "similarity": lambda a, b: np.cos(a * b).sum(axis=1), "candidates": 5}
    found = exact_and_reranked_recall(x, labels, queries=30, seed=1, **options)
    hits = []
    for q in np.random.default_rng(1).choice(80, 30, replace=False):
        rest = np.arange(80) != q
        others = {"gallery_embeddings": x[rest], "gallery_labels": labels[rest]}
        hits.append(exact_and_reranked_recall(x[[q]], labels[[q]], **options, **others))
    for i, recalls in enumerate(found):
        for count in (1, 3):
            assert recalls[count] == pytest.approx(np.mean([one[i][count] for one in hits]))
    assert exact_and_reranked_recall(x, labels, queries=30, seed=2, **options) != found


def test_warns_of_queries_without_a_relevant_row_alone():
    options = {"k": 1, "similarity": lambda a, b: -np.square(a - b).sum(axis=1)}
    rows = np.array([[0.0], [0.1], [9.0]])
    with pytest.warns(UserWarning, match="1 of 3 queries have no other row") as reported:
        assert recall_after_reranking(rows, [0, 0, 1], candidates=2, **options) == {1: 2 / 3}
    assert reported[0].filename == __file__
    # A relevant row that is no candidate is a miss, but nothing to warn of.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = np.array([[0.0], [0.1], [9.0], [9.1]])
        assert recall_after_reranking(rows, [0, 1, 0, 1], candidates=1, **options) == {1: 0.0}


X, Y = np.ones((8, 5)), np.arange(8) // 2
GOOD = {"similarity": lambda a, b: a[:, 0], "candidates": 4, "k": 1}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"similarity": None}, TypeError, "`similarity` must be a callable. Received: simil"),
        ({"similarity": lambda a, b: a @ b.T}, ValueError, r"must return shape \(\d+,\)"),
        ({"similarity": lambda a, b: a[:, 0] * np.nan}, ValueError, "finite scores. Received: sc"),
        ({"candidates": 0}, ValueError, "`candidates` must be an integer >= 1"),
        ({"candidates": 8}, ValueError, "`candidates` must not exceed.*gallery_size=7"),
        ({"k": 5}, ValueError, "`k` must not exceed `candidates`. Received: k=5, candidates=4"),
        ({"k": 0}, ValueError, "`k` must be (positive integers|an integer >= 1)"),
        ({"gallery_embeddings": [X], "gallery_labels": Y}, ValueError, "must be one array.*'list"),
        ({"queries": 0}, ValueError, "`queries` must be an integer >="),
    ],
)
def test_rejects_wrong_input(options, error, message):
    with pytest.raises(error, match=message):
        exact_and_reranked_recall(X, Y, **{**GOOD, **options})
    if options.keys() <= GOOD.keys():
        with pytest.raises(error, match=message):
            reranked_neighbours(X, **{**GOOD, **options})


def test_reranked_neighbours_equal_loops_with_ties(rng, monkeypatch):
    monkeypatch.setattr(reranking, "_PAIRS_AT_ONCE", 7)
    x = rng.integers(0, 4, (30, 2)).astype(np.float64)
    options = {"similarity": lambda a, b: np.round(a[:, 0] * b[:, 1]), "candidates": 6}
    found = reranked_neighbours(x, 3, **options)
    for q in range(30):
        near = sorted((float(np.sum((x[j] - x[q]) ** 2)), j) for j in range(30) if j != q)[:6]
        ranked = sorted((-x[q, 0] * x[j, 1], place) for place, (_, j) in enumerate(near))
        assert found[q].tolist() == [near[place][1] for _, place in ranked[:3]]
