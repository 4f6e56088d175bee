import json
import pathlib
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfdml.evaluation import recall_at_k, tiles

pytestmark = pytest.mark.filterwarnings("ignore:.*(have no other row|collapsed)")

GOLDEN = json.loads((pathlib.Path(__file__).parents[2] / "golden" / "golden.json").read_text())


def brute_force(embeddings, labels, k, gallery=None, gallery_labels=None):
    """Recall@K as a loop over queries in float64, ties ranked against the query."""
    own = gallery is None
    gallery, gallery_labels = (embeddings, labels) if own else (gallery, gallery_labels)
    hits = dict.fromkeys(k, 0)
    for q, query in enumerate(embeddings.astype(np.float64)):
        others = [j for j in range(len(gallery)) if not (own and j == q)]
        ranked = sorted(
            (float(np.sum((gallery[j].astype(np.float64) - query) ** 2)), relevant)
            for j in others
            for relevant in [int(gallery_labels[j]) == int(labels[q])]
        )
        for count in k:
            hits[count] += any(relevant for _, relevant in ranked[:count])
    return {count: hits[count] / len(embeddings) for count in k}


def test_counts_hits_among_k_neighbours_and_no_more():
    #  0: A  1: B  2: B  3: A    each row's neighbours in order, by hand
    line, labels = np.array([[0.0], [1.0], [2.5], [4.5]]), np.array([0, 1, 1, 0])
    # 0 sees B B A: rank 2. 1.0 sees A B: rank 1. 2.5 sees B: rank 0. 4.5 sees B B A: rank 2.
    assert recall_at_k(line, labels, k=(1, 2, 3)) == {1: 0.25, 2: 0.5, 3: 1.0}


def test_equals_the_golden_values():
    inputs, expected = GOLDEN["inputs"]["E"], GOLDEN["metrics"]
    x, y = np.array(inputs["X"]), np.array(inputs["y"])
    for count, score in expected["recall_at_k"].items():
        assert recall_at_k(x, y, k=int(count)) == {int(count): pytest.approx(score, abs=1e-12)}
    query = np.isin(np.arange(12), [0, 3, 6, 9])
    gallery = {"gallery_embeddings": x[~query], "gallery_labels": y[~query]}
    for count, score in expected["qg_recall"].items():
        assert recall_at_k(x[query], y[query], k=int(count), **gallery)[int(count)] == score


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("kind", ["spread", "grid", "duplicates", "far", "tiny"])
def test_equals_brute_force(kind, dtype, rng):
    x = {
        "spread": rng.normal(size=(60, 6)),
        "grid": rng.integers(0, 3, (60, 3)).astype(float),  # many exact ties
        "duplicates": np.repeat(rng.normal(size=(20, 6)), 3, axis=0),
        "far": rng.normal(size=(60, 6)) + 1000,
        "tiny": rng.normal(size=(60, 6)) * 1e-3,
    }[kind].astype(dtype)
    labels = rng.integers(0, 9, 60) + 2**40
    labels[:3] = [1, 2, 2**62]  # lonely ones
    k = (1, 2, 5, 59)
    assert recall_at_k(x, labels, k=k) == brute_force(x, labels, k)
    gallery = {"gallery_embeddings": x[::2], "gallery_labels": labels[::2]}
    expected = brute_force(x[1::2], labels[1::2], (1, 3), x[::2], labels[::2])
    assert recall_at_k(x[1::2], labels[1::2], k=(1, 3), **gallery) == expected


def test_class_ids_that_a_float_would_merge_stay_apart():
    x = np.array([[0.0], [0.1], [5.0], [5.1]])
    labels = np.array([2**53, 2**53 + 1, 2**53, 2**53 + 1])
    assert recall_at_k(x, labels, k=1) == {1: 0.0}


def test_ties_never_help(rng):
    collapsed = np.full((300, 8), 0.3, "float32")
    labels = np.arange(300) % 10
    assert recall_at_k(collapsed, labels, k=(1, 8)) == {1: 0.0, 8: 0.0}


def test_perfect_embeddings_score_exactly_one(rng):
    labels = rng.integers(0, 20, 200)
    centres = rng.normal(size=(20, 8)) * 100
    x = centres[labels] + 1e-3 * rng.normal(size=(200, 8))
    assert recall_at_k(x, labels, k=(1, 4)) == {1: 1.0, 4: 1.0}


def test_ignores_the_order_of_the_rows(rng):
    x, labels, order = rng.normal(size=(80, 4)), rng.integers(0, 9, 80), rng.permutation(80)
    assert recall_at_k(x[order], labels[order]) == recall_at_k(x, labels)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_ignores_the_size_of_the_tiles(size, rng, monkeypatch):
    x, labels = rng.normal(size=(80, 4)), rng.integers(0, 9, 80)
    x[40:] = x[:40]
    expected = brute_force(x, labels, (1, 2, 4, 8))
    monkeypatch.setattr(tiles.DistanceTiles, "size", size)
    assert recall_at_k(x, labels) == expected


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31), n=st.integers(3, 30), classes=st.integers(1, 6))
def test_grows_with_k_to_the_share_of_queries_with_a_relevant_row(seed, n, classes):
    rng = np.random.default_rng(seed)
    x, labels = rng.normal(size=(n, 3)), rng.integers(0, classes, n)
    scores = list(recall_at_k(x, labels, k=range(1, n)).values())
    assert scores == sorted(scores)
    has_relevant = np.bincount(labels)[labels] > 1
    assert scores[-1] == np.mean(has_relevant)


def test_reports_queries_without_a_relevant_row():
    warnings.simplefilter("default")
    with pytest.warns(UserWarning, match="1 of 3 queries have no other row of their class"):
        scores = recall_at_k(np.array([[0.0], [0.1], [9.0]]), np.array([0, 0, 1]), k=1)
    assert scores == {1: 2 / 3}


def test_memory_stays_that_of_a_block(rng):
    x, labels = rng.normal(size=(10_000, 64)).astype("float32"), rng.integers(0, 2000, 10_000)
    tracemalloc.start()
    recall_at_k(x, labels)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200e6  # the full matrix of distances would be 400e6


X, Y = np.zeros((8, 5)), np.arange(8)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((X, Y[:7]), {}, ValueError, r"same batch size. Received: labels.shape=\(7,\)"),
        ((X, Y / 2), {}, TypeError, r"`labels` must be integers. Received: dtype=float64 \(arg"),
        ((X, Y.astype(str)), {}, TypeError, r"integers; convert names by np\.unique\(labels, "),
        ((X, np.eye(8)), {}, TypeError, r"integers; convert one-hot rows by np\.argmax\(labels, "),
        ((X, np.eye(8, dtype=int)), {}, ValueError, r"\(n, 1\); convert one-hot rows by "),
        ((Y[:, None], Y), {}, TypeError, "`embeddings` must be floats. Received: dtype=int64"),
        ((X[0], Y), {}, ValueError, r"`embeddings` must have shape \(n, dim\)"),
        ((X[:0], Y[:0]), {}, ValueError, "`embeddings` must not be empty"),
        ((X + np.nan, Y), {}, ValueError, "`embeddings` must be finite. Received: rows_not_fin"),
        ((X, Y), {"k": 0}, ValueError, "`k` must be positive integers. Received: k=0"),
        ((X, Y), {"k": ()}, ValueError, "`k` must be positive integers"),
        ((X, Y), {"k": 1.5}, ValueError, "`k` must be positive integers. Received: k=1.5"),
        ((X, Y), {"k": 8}, ValueError, "must not exceed the gallery size.*gallery_size=7"),
        ((X, Y), {"gallery_labels": Y}, ValueError, "must be given together"),
        (
            (X, Y),
            {"gallery_embeddings": X[:, :4], "gallery_labels": Y},
            ValueError,
            "must have the same dim",
        ),
    ],
)
def test_rejects_wrong_input(arguments, options, error, message):
    with pytest.raises(error, match=message):
        recall_at_k(*arguments, **options)
