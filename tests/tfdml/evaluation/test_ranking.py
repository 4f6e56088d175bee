import itertools
import os
import time
import tracemalloc

import numpy as np
import pytest
from ranking_loops import grid, nearness, ranks_by_loops, uneven_labels

from tfdml.evaluation import (
    apart,
    nearest_neighbours,
    rank,
    recall_at_k,
    retrieval_scores,
    scores_to_rank,
    tiles,
)
from tfdml.evaluation import ranking as engine

pytestmark = pytest.mark.filterwarnings("ignore:.*have no other row")


def ranks_of(ranking):
    return list(zip(*(of.tolist() for of in ranking.relevant_ranks), strict=True))


def some_rows(rng, rows=60):
    return grid(rng, rows), uneven_labels(rng, rows)


UNLIKE = np.where(np.arange(60) % 2, 2.0**-40, 2.0**50)[:, None]


@pytest.mark.parametrize(
    ("scale", "offset"),
    [(2.0**-900, 0), (1e-15, 1e6), (1, 0), (1e15, 1e6), (2.0**900, 0), (UNLIKE, 0)],
    ids=str,
)
def test_ranks_equal_loops_whatever_the_scale_and_the_offset(scale, offset, sizes, rng):
    x, labels = some_rows(rng)
    if scale is UNLIKE:
        x, scale = UNLIKE * x, 1
    expected = ranks_by_loops(nearness(x, x), labels, labels, np.eye(60, dtype=bool))
    for options in ({}, {"histogram": True}):
        ranking = rank((x + offset) * scale, labels, nearest=0, **options)
        assert ranks_of(ranking) == expected
    assert ranking.relevant.tolist() == [sum(labels == label) - 1 for label in labels]


def test_what_float32_cannot_tell_apart_counts_against_the_query():
    row = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0 + 1e-9], [5.0, 5.0]])
    assert ranks_of(rank(row, np.array([0, 0, 1, 2]), nearest=0)) == [(0, 1, 2), (1, 1, 2)]
    row[2] = 0.0, 1.001
    assert ranks_of(rank(row, np.array([0, 0, 1, 2]), nearest=0)) == [(0, 1, 1), (1, 1, 2)]


@pytest.mark.parametrize("first_only", [False, True])
@pytest.mark.parametrize("depth", [0, 1, 7, "own"])
def test_ranks_end_at_the_depth(depth, first_only, sizes, rng):
    x, labels = some_rows(rng)
    depth = rng.integers(0, 30, 60) if depth == "own" else depth
    limit = np.broadcast_to(depth, 60)
    expected = [
        (query, place, of)
        for query, place, of in ranks_by_loops(
            nearness(x, x), labels, labels, np.eye(60, dtype=bool)
        )
        if of <= limit[query] and (place == 1 or not first_only)
    ]
    assert ranks_of(rank(x, labels, depth=depth, first_only=first_only)) == expected


def test_a_gallery_may_come_in_blocks_or_from_a_file(sizes, rng, tmp_path):
    x, labels = some_rows(rng, rows=100)
    queries, ids, gallery, gallery_ids = x[:40], labels[:40], x[20:], labels[20:]
    file = np.memmap(tmp_path / "rows", gallery.dtype, "w+", shape=gallery.shape)
    file[:] = gallery
    own = np.stack([np.arange(40) - 20, np.full(40, -1)], axis=1)
    own[:20] = -1
    own[5] = [7, 9]  # twice in the gallery, with labels of its own
    excluded = (np.arange(80) == own[:, :, None]).any(axis=1)
    expected = ranks_by_loops(nearness(queries, gallery), ids, gallery_ids, excluded)
    exact = np.where(excluded, np.inf, np.sqrt(-nearness(queries, gallery)))
    for given_rows in (gallery, np.split(gallery, range(4, 80, 4)), np.split(gallery, [25]), file):
        ranking = rank(queries, ids, given_rows, gallery_ids, own=own, nearest=5)
        assert ranks_of(ranking) == expected
        np.testing.assert_allclose(ranking.distances, np.sort(exact, axis=1)[:, :5], rtol=1e-12)
        found = np.take_along_axis(exact, ranking.nearest, axis=1)
        np.testing.assert_allclose(found, ranking.distances, rtol=1e-12)


@pytest.mark.parametrize("metrics", ["recall", None])
def test_scores_every_pair_once_in_tiles(metrics, rng, monkeypatch):
    monkeypatch.setattr(tiles.SimilarityTiles, "size", 7)
    pairs = []

    def similarity(a, b):
        assert max(len(a), len(b)) <= 7
        pairs.extend(itertools.product(a[:, 0].tolist(), b[:, 0].tolist()))
        return a @ b.T

    x, labels = rng.permutation(np.arange(60.0))[:, None], rng.integers(0, 9, 60)
    retrieval_scores(x, labels, metrics=metrics, similarity=similarity)
    monkeypatch.setattr(tiles, "_SCORED_ROWS", 7)
    assert len(set(pairs)) == len(pairs) == scores_to_rank(60)
    assert len(set(map(frozenset, pairs))) == 60 * 61 // 2


def test_a_pair_has_one_score_however_it_is_rounded():
    # Row 1 would tie with row 3 for row 2 if each took the score that was asked in its own name.
    table = np.array([[0, 3, 0, 0], [3, 0, 2 - 1e-9, 0], [0, 2, 0, 2], [0, 0, 2, 0]])
    rows = np.arange(4.0)[:, None]

    def similarity(a, b):
        return table[np.ix_(a[:, 0].astype(int), b[:, 0].astype(int))]

    assert recall_at_k(rows, np.array([0, 0, 1, 1]), k=1, similarity=similarity) == {1: 1.0}


def test_finds_the_best_rows_by_a_similarity(sizes, rng):
    x, labels = rng.normal(size=(60, 4)), np.arange(60)
    ranking = rank(x, labels, similarity=lambda a, b: a @ b.T, nearest=6)
    scores = x @ x.T
    np.fill_diagonal(scores, -np.inf)
    assert ranking.nearest.tolist() == np.argsort(-scores, axis=1)[:, :6].tolist()
    np.testing.assert_allclose(ranking.distances, -np.sort(-scores, axis=1)[:, :6])


@pytest.mark.parametrize("points", ["tiny", "huge", "tied", "nearly tied"])
def test_finds_the_nearest_rows_by_distance_then_by_number(points, sizes, rng):
    x = {
        "tiny": lambda: (2.0**-60 * rng.normal(size=(80, 5))).astype("f4"),
        "huge": lambda: 2.0**60 * rng.normal(size=(80, 5)),
        "tied": lambda: rng.integers(-2, 3, (13, 2)).astype(float),
        "nearly tied": lambda: (  # as far as float32 can tell
            np.repeat([-1.0, 1.0], 8)[:, None] + 1e-6 * rng.normal(size=(16, 3))
        ),
    }[points]()
    distances = np.sqrt(-nearness(x, x))
    np.fill_diagonal(distances, np.inf)
    order = np.argsort(distances, axis=1, kind="stable")
    for k in (1, 7, len(x) - 1):
        assert nearest_neighbours(x, k).tolist() == order[:, :k].tolist()
        ranking = rank(x, np.arange(len(x)), nearest=k, depth=0)
        expected = np.take_along_axis(distances, order[:, :k], axis=1)
        np.testing.assert_allclose(ranking.distances, expected, rtol=1e-12)


def test_no_more_rows_are_found_than_there_are():
    ranking = rank(np.eye(3), np.arange(3), nearest=8)
    assert ranking.nearest.tolist() == [[1, 2], [0, 2], [0, 1]]
    with pytest.raises(ValueError, match=r"`k` must not exceed the number of other rows. Rec"):
        nearest_neighbours(np.ones((3, 2)), 3)
    for k in (0, 1.5, True):
        with pytest.raises(ValueError, match=r"`k` must be an integer >= 1. Received: k="):
            nearest_neighbours(np.ones((3, 2)), k)


def test_one_product_of_all_pairs_fills_everything(rng, monkeypatch):
    multiplied, matmul = [], np.matmul

    def counted(a, b, out):
        multiplied.append(out.size)
        return matmul(a, b, out=out)

    monkeypatch.setattr(tiles.DistanceTiles, "size", 50)
    monkeypatch.setattr(np, "matmul", counted)
    rank(rng.normal(size=(500, 8)), np.arange(500) // 5, nearest=10, histogram=True)
    above, within_classes = 500 * 500 / 2 + 50 * 500 / 2, 50 * 500
    assert sum(multiplied) == above + within_classes
    # Queries are first compared with the rows of the classes that they ask for alone.
    gallery = rng.normal(size=(2000, 4))
    for given in (gallery, np.split(gallery, [900])):
        multiplied.clear()
        rank(rng.normal(size=(2, 4)), np.array([3, 90]), given, np.arange(2000) % 100, nearest=0)
        assert sum(multiplied) == 2 * (2 * 20 + 2000)


def test_no_thread_overwrites_the_counts_of_another(rng, monkeypatch):
    x, labels = some_rows(rng)
    expected = ranks_by_loops(nearness(x, x), labels, labels, np.eye(60, dtype=bool))
    count = engine._Places.count

    class Slow(np.ndarray):
        def __iadd__(self, other):
            total = np.asarray(self) + other
            time.sleep(1e-4)
            np.asarray(self)[...] = total
            return self

    def slow(self, scores):
        self.before = self.before.view(Slow)
        count(self, scores)

    monkeypatch.setattr(engine._Places, "count", slow)
    monkeypatch.setattr(tiles.DistanceTiles, "size", 5)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert ranks_of(rank(x, labels, nearest=0)) == expected


@pytest.mark.parametrize(
    ("rows", "similarity", "size"), [(4000, None, 4), (2000, lambda a, b: a @ b.T, 8)]
)
def test_memory_stays_that_of_a_few_tiles(rows, similarity, size, rng):
    x, labels = rng.normal(size=(rows, 32)).astype("float32"), rng.integers(0, 2000, rows)
    tracemalloc.start()
    rank(x, labels, similarity=similarity)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < rows**2 * size / 2  # half of the matrix of scores


X, Y = np.zeros((8, 5)), np.arange(8) // 2


def spoilt(a, b):
    scores = a @ b.T
    scores[0, 1] = np.nan
    return scores


@pytest.mark.parametrize(
    ("gallery", "options", "error", "message"),
    [
        ((iter([X]), Y), {}, ValueError, "must be blocks that can be read twice, .*: type='li"),
        (([X, X], Y), {}, ValueError, "one label per gallery row. Received: labels=8, rows=16"),
        (([X, X[:, :4]], np.tile(Y, 2)), {}, ValueError, "must have the same dim"),
        (([X, X + np.nan], np.tile(Y, 2)), {}, ValueError, "`gallery_embeddings` must be finite"),
        ((X,), {}, ValueError, "must be given together"),
        ((X, Y), {"histogram": True}, ValueError, "`histogram` counts the pairs of queries among"),
        ((X, Y), {"own": np.arange(7)}, ValueError, "`own` must have ids for each query"),
        ((X, Y), {"nearest": -1}, ValueError, "`nearest` must be an integer >= 0"),
        ((), {"similarity": "pddm"}, TypeError, "must be a callable or None. Rec.*='pddm'"),
        ((), {"similarity": lambda a, b: a[:, 0]}, ValueError, r"\(8, 8\).*scores.shape=\(8,\)"),
        ((), {"similarity": spoilt}, ValueError, "finite scores. Received: scores_not_finite=1"),
        ((), {"similarity": lambda a, b: np.tri(8)}, ValueError, "symmetric. .*difference=1.0"),
    ],
)
def test_rejects_wrong_galleries_and_similarities(gallery, options, error, message):
    with pytest.raises(error, match=message):
        rank(X, Y, *gallery, **options)


@pytest.mark.parametrize(
    "queries", [[True] * 3, [False] * 3, [True, False], [1, 0, 0], [[True], [False], [True]]]
)
def test_rejects_queries_that_leave_no_search(queries):
    with pytest.raises(ValueError, match="`queries` must be"):
        apart(np.eye(3), np.arange(3), queries)
