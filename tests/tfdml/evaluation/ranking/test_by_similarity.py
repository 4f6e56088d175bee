import tracemalloc
import warnings

import numpy as np
import pytest

from tfdml.evaluation import (
    recall_at_k,
    retrieval_scores,
    scores_to_rank,
)
from tfdml.evaluation.ranking import by_similarity

pytestmark = pytest.mark.filterwarnings("ignore:.*(have no other row|collapsed)")


def brute_force(scores, labels, k, gallery_labels=None):
    """Recall@K as a loop over queries of a table of scores, ties ranked against the query."""
    own = gallery_labels is None
    gallery_labels = labels if own else gallery_labels
    hits = dict.fromkeys(k, 0)
    for q, row in enumerate(scores):
        ranked = sorted(
            (-float(score), int(gallery_labels[j]) == int(labels[q]))
            for j, score in enumerate(row)
            if not (own and j == q)
        )
        for count in k:
            hits[count] += any(relevant for _, relevant in ranked[:count])
    return {count: hits[count] / len(labels) for count in k}


def looked_up(table):
    """A similarity that reads its scores from a table, and rows that know their place in it."""

    def similarity(a, b):
        return table[np.ix_(a[:, 0].astype(int), b[:, 0].astype(int))]

    rows, columns = (np.arange(size, dtype=float)[:, None] for size in table.shape)
    return similarity, rows, columns


def symmetric(table):
    return np.triu(table) + np.triu(table, 1).T


@pytest.fixture(
    params=[7, 59, 60, 256, *(pytest.param(rows, marks=pytest.mark.slow) for rows in (1, 20, 61))]
)
def tile_rows(request, monkeypatch):
    monkeypatch.setattr(by_similarity, "_TILE_ROWS", request.param)
    return request.param


def test_counts_hits_among_k_neighbours_and_no_more():
    table = symmetric(np.array([[9, 5, 4, 3], [0, 9, 2, 1], [0, 0, 9, 4], [0, 0, 0, 9]], float))
    similarity, rows, _ = looked_up(table)
    # Of A B A B the first sees B A: rank 1. The second A A B: 2. The third A B, tied at 4: 1, as
    # the B counts first. The last A A B with 4 3 1: 2.
    scores = recall_at_k(rows, np.array([0, 1, 0, 1]), k=(1, 2, 3), similarity=similarity)
    assert scores == {1: 0.0, 2: 0.5, 3: 1.0}


@pytest.mark.parametrize("kind", ["spread", "ties", "equal", "negative"])
def test_equals_brute_force(kind, tile_rows, rng):
    table = {
        "spread": rng.normal(size=(60, 60)),
        "ties": rng.integers(0, 4, (60, 60)).astype("float32"),
        "equal": np.full((60, 60), 0.5, "float16"),
        "negative": -rng.exponential(size=(60, 60)) - 100,
    }[kind]
    labels = rng.integers(0, 9, 60) + 2**60
    labels[:3] = [1, 2, 2**62]  # lonely ones
    similarity, rows, _ = looked_up(symmetric(table))
    for k in [(1, 2, 5, 59), (1,), (3, 4)]:
        expected = brute_force(symmetric(table), labels, k)
        assert recall_at_k(rows, labels, k=k, similarity=similarity) == expected


@pytest.mark.parametrize("kind", ["spread", "ties"])
def test_equals_brute_force_in_a_gallery(kind, tile_rows, rng):
    table = {"spread": rng.normal(size=(40, 60)), "ties": rng.integers(0, 4, (40, 60))}[kind]
    similarity, queries, gallery = looked_up(table)
    labels, gallery_labels = rng.integers(0, 9, 40), rng.integers(0, 8, 60)
    for k in [(1, 2, 5, 60), (2,)]:
        scores = recall_at_k(
            queries,
            labels,
            k=k,
            gallery_embeddings=gallery,
            gallery_labels=gallery_labels,
            similarity=similarity,
        )
        assert scores == brute_force(table, labels, k, gallery_labels)


@pytest.mark.parametrize("metrics", ["recall", None])
def test_scores_every_pair_once_in_tiles(metrics, tile_rows, rng):
    pairs, sizes = [], []

    def similarity(a, b):
        i, j = np.meshgrid(a[:, 0], b[:, 0], indexing="ij")
        pairs.extend(zip(i.ravel().astype(int), j.ravel().astype(int), strict=True))
        sizes.extend([len(a), len(b)])
        return i * j

    labels = np.sort(rng.integers(0, 9, 60))  # tiles are of rows in the order of their classes
    retrieval_scores(np.arange(60.0)[:, None], labels, metrics=metrics, similarity=similarity)
    assert max(sizes) <= tile_rows
    assert len(set(pairs)) == len(pairs) == scores_to_rank(60)
    above = [(i, j) for i, j in pairs if i < j]
    assert len(above) == 60 * 59 // 2
    # What lies below comes with a tile of the diagonal.
    assert all(i // tile_rows == j // tile_rows for i, j in pairs if i > j)


def test_a_pair_has_one_score_however_it_is_rounded(rng):
    # Row 1 would tie with row 3 for row 2 if each took the score that was asked in its own name.
    table = np.array([[0, 3, 0, 0], [3, 0, 2 - 1e-9, 0], [0, 2, 0, 2], [0, 0, 2, 0]])
    similarity, rows, _ = looked_up(table)
    scores = recall_at_k(rows, np.array([0, 0, 1, 1]), k=1, similarity=similarity)
    assert scores == {1: 1.0}


def test_minus_the_distance_is_the_default(rng):
    x, labels = rng.normal(size=(300, 4)), rng.integers(0, 40, 300)

    def similarity(a, b):
        return -np.square(a[:, None] - b).sum(axis=-1)

    assert recall_at_k(x, labels, similarity=similarity) == recall_at_k(x, labels)
    gallery = {"gallery_embeddings": x[:200], "gallery_labels": labels[:200]}
    expected = recall_at_k(x[200:], labels[200:], **gallery)
    assert recall_at_k(x[200:], labels[200:], similarity=similarity, **gallery) == expected


def test_class_ids_that_a_float_would_merge_stay_apart():
    gallery = {
        "gallery_embeddings": np.array([[0.0], [1.0]]),
        "gallery_labels": np.array([2**53, 2**53 + 1]),
    }
    labels = np.array([2**53 + 1, 2**53 + 1], "uint64")
    rows = np.array([[1.0], [0.0]])
    scores = recall_at_k(rows, labels, k=1, similarity=lambda a, b: -abs(a - b.T), **gallery)
    assert scores == {1: 0.5}


def test_reports_queries_without_a_relevant_row():
    warnings.simplefilter("default")
    rows = np.array([[0.0], [0.1], [9.0]])
    with pytest.warns(UserWarning, match="1 of 3 queries have no other row") as reported:
        scores = recall_at_k(rows, np.array([0, 0, 1]), k=1, similarity=lambda a, b: -abs(a - b.T))
    assert scores == {1: 2 / 3}
    assert reported[0].filename == __file__


@pytest.mark.parametrize("wrapped", [False, True])
def test_ranks_as_the_matrix_of_a_learned_similarity_does(wrapped, rng):
    import tensorflow as tf

    from tfdml.layers import PDDM

    x, labels = rng.normal(size=(300, 8)).astype("float32"), rng.integers(0, 30, 300)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    layer = PDDM(seed=0)
    expected = brute_force(np.asarray(layer.matrix(x)), labels, (1, 2, 4, 8))
    similarity = layer.matrix
    if wrapped:
        rows = tf.TensorSpec((None, 8), tf.float32)
        similarity = tf.function(layer.matrix, input_signature=[rows, rows])
    assert recall_at_k(x, labels, similarity=similarity) == expected
    assert expected != recall_at_k(x, labels)  # it is another ranking than by distance


def test_memory_stays_that_of_a_tile(rng):
    x, labels = rng.normal(size=(3000, 16)).astype("float32"), rng.integers(0, 300, 3000)
    tracemalloc.start()
    recall_at_k(x, labels, similarity=lambda a, b: a @ b.T)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10e6  # the full matrix of float32 scores would be 36e6


X, Y = np.ones((8, 5)), np.arange(8) // 2


def spoilt(a, b):
    scores = a @ b.T
    scores[0, 1] = np.nan
    return scores


@pytest.mark.parametrize(
    ("similarity", "error", "message"),
    [
        ("pddm", TypeError, "`similarity` must be a callable or None. Received: similarity='pddm'"),
        (lambda a, b: a[:, 0], ValueError, r"must return shape \(8, 8\).*scores.shape=\(8,\)"),
        (lambda a, b: None, ValueError, r"must return shape \(8, 8\).*scores.shape=\(\)"),
        (spoilt, ValueError, "must return finite scores. Received: scores_not_finite=1"),
        (lambda a, b: np.full((8, 8), np.inf), ValueError, "scores_not_finite=64"),
        (lambda a, b: np.tri(8), ValueError, "must be symmetric. Received: largest_difference=1.0"),
    ],
)
def test_rejects_wrong_similarities(similarity, error, message):
    with pytest.raises(error, match=message):
        recall_at_k(X, Y, k=1, similarity=similarity)


def test_says_where_all_scores_are_equal(rng):
    labels = np.repeat(np.arange(10), 2)
    with pytest.warns(UserWarning, match="may have collapsed: its best scores are all equal, 0.25"):
        recall = recall_at_k(
            rng.normal(size=(20, 2)),
            labels,
            k=1,
            similarity=lambda a, b: np.full((len(a), len(b)), 0.25),
        )
    assert recall == {1: 0.0}
