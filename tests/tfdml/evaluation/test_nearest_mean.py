import tracemalloc
import warnings

import numpy as np
import pytest

from tfdml.evaluation import (
    class_means,
    nearest_class_mean,
    nearest_class_mean_per_query,
    recall_at_k,
)
from tfdml.evaluation.exact import points
from tfdml.evaluation.ranking import means as ranking_means


def means_by_a_loop(embeddings, labels):
    return {
        label: sum(
            row for row, own in zip(embeddings, labels.tolist(), strict=True) if own == label
        )
        / labels.tolist().count(label)
        for label in sorted(set(labels.tolist()))
    }


def top_k_by_a_loop(means, embeddings, labels, k):
    """Per row 1.0 for a hit: fewer than K other classes at the distance of its own or nearer."""
    values = []
    for row, label in zip(embeddings.astype(np.float64), labels.tolist(), strict=True):
        squared = {name: float(np.sum((row - mean) ** 2)) for name, mean in means.items()}
        before = sum(
            squared[name] <= squared[label] for name in means if name != label and label in means
        )
        values.append(float(label in means and before < k))
    return values


@pytest.fixture(autouse=True)
def _classes_without_means_may_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def rows_of(kind, rng, n):
    return {
        "spread": rng.normal(size=(n, 6)),
        "grid": rng.integers(0, 3, (n, 2)).astype(float),  # many exact ties
        "duplicates": np.repeat(rng.normal(size=(n // 3, 6)), 3, axis=0),
        "far": rng.normal(size=(n, 6)) + 1000,
        "tiny": rng.normal(size=(n, 6)) * 1e-150,
        "huge": rng.normal(size=(n, 6)) * 1e150,
        "one far": np.concatenate([rng.normal(size=(n - 1, 6)), np.full((1, 6), 1e6)]),
    }[kind]


KINDS = ["spread", "grid", "duplicates", "far", "tiny", "huge", "one far"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_loops(kind, dtype, rng):
    if dtype == "float32" and kind in ("tiny", "huge"):
        pytest.skip("out of the range of float32")
    rows, labels = rows_of(kind, rng, 120).astype(dtype), rng.integers(0, 12, 120) + 2**40
    labels[:2] = [3, 2**62]  # a class each, of which no row trains
    train, test = slice(60, None), slice(0, 60)
    means = means_by_a_loop(rows[train].astype(np.float64), labels[train])
    ids, found = class_means(rows[train], labels[train])
    assert ids.tolist() == list(means)
    np.testing.assert_allclose(found, list(means.values()), rtol=1e-12)
    # The ties of the grid are ties of means that round alike: take those that were found.
    means = dict(zip(ids.tolist(), found, strict=True))
    scale = 1e-140 if kind == "huge" else 1e140 if kind == "tiny" else 1.0
    means = {name: mean * scale for name, mean in means.items()}
    data = (rows[train], labels[train], rows[test], labels[test])
    values = nearest_class_mean_per_query(*data, k=(1, 5))
    scores = nearest_class_mean(*data, k=(5, 1))
    for k in (1, 5):
        expected = top_k_by_a_loop(means, rows[test].astype(np.float64) * scale, labels[test], k)
        assert values[f"top{k}"].tolist() == expected
        assert scores[k] == pytest.approx(np.mean(expected), abs=1e-12)
    assert 0 < scores[5] < 1


def test_is_the_recall_among_means(rng):
    rows, labels = rng.normal(size=(400, 5)), rng.integers(0, 40, 400)
    ids, means = class_means(rows[::2], labels[::2])
    gallery = {"gallery_embeddings": means, "gallery_labels": ids}
    expected = recall_at_k(rows[1::2], labels[1::2], k=(1, 5, 20), **gallery)
    data = (rows[::2], labels[::2], rows[1::2], labels[1::2])
    assert nearest_class_mean(*data, k=(1, 5, 20)) == expected


def test_ties_never_help():
    #  means at 0, 2 and 2 again; the row 1 is as far from all, the row 2 upon two of them
    train, test = np.array([[0.0], [2.0], [2.0]]), np.array([[1.0], [2.0], [0.0]])
    scores = nearest_class_mean(train, [0, 1, 2], test, [0, 1, 0], k=(1, 2, 3))
    assert scores == {1: 1 / 3, 2: 2 / 3, 3: 1.0}
    collapsed = np.full((50, 3), 0.3)
    labels = np.arange(50) % 10
    assert nearest_class_mean(collapsed, labels, collapsed, labels) == {1: 0.0, 5: 0.0}


def test_means_may_be_made_unit_length(rng):
    train = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.2], [0.0, 0.0]])
    labels = np.array([0, 0, 1, 2])
    ids, means = class_means(train, labels, normalize=True)
    assert ids.tolist() == [0, 1, 2]
    np.testing.assert_allclose(means[:2], [[0.5**0.5] * 2, np.array([1, 0.2]) / 1.04**0.5])
    assert means[2].tolist() == [0.0, 0.0]
    # By angle nearer to the mean at 0.785 than to that at 0.197, which is longer as it is.
    test = np.array([[np.cos(0.52), np.sin(0.52)]])
    found = [
        nearest_class_mean(train[:3], labels[:3], test, [0], k=1, renormalize_means=unit)[1]
        for unit in (False, True)
    ]
    assert found == [0.0, 1.0]


def test_rows_of_classes_without_training_rows_are_misses_with_a_warning():
    message = "1 of 2 test rows are of classes without a training row"
    with pytest.warns(UserWarning, match=message) as reported:
        scores = nearest_class_mean(np.eye(2), [0, 1], np.eye(2), [0, 5], k=(1, 2))
    assert scores == {1: 0.5, 2: 0.5}
    assert reported[0].filename == __file__


def test_class_ids_that_a_float_would_merge_stay_apart():
    train, test = np.array([[0.0], [1.0]]), np.array([[0.1]])
    for dtype in (np.int64, np.uint64):
        ids = np.array([2**53, 2**53 + 1], dtype)
        assert nearest_class_mean(train, ids, test, np.array([2**53]), k=1) == {1: 1.0}
        assert nearest_class_mean(train, ids, test, np.array([2**53 + 1]), k=1) == {1: 0.0}


def test_ignores_the_order_of_rows_and_the_size_of_blocks(rng, monkeypatch):
    rows, labels = rng.integers(0, 4, (90, 3)).astype(float), rng.integers(0, 9, 90)
    test = rng.integers(0, 4, (70, 3)).astype(float), rng.integers(0, 9, 70)
    expected = nearest_class_mean(rows, labels, *test)
    order = rng.permutation(90)
    assert nearest_class_mean(rows[order], labels[order], *test) == expected
    for size in (1, 8 * 9 * 7):
        monkeypatch.setattr(ranking_means, "_BLOCK_BYTES", size)
        monkeypatch.setattr(points, "_CHUNK_ROWS", 3)
        assert nearest_class_mean(rows, labels, *test) == expected


def test_memory_stays_that_of_a_block(rng):
    means, rows = rng.normal(size=(5000, 32)), rng.normal(size=(20_000, 32)).astype("float32")
    tracemalloc.start()
    ranking_means.rank_means(rows, means, np.arange(20_000) % 5000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200e6  # the full matrix of distances would be 800e6


X, Y = np.zeros((8, 5)), np.arange(8)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((X, Y[:7], X, Y), {}, ValueError, "`train_labels` and `train_embeddings` must have the"),
        ((X, Y, X, Y / 2), {}, TypeError, "`test_labels` must be integers. Received: dtype=float"),
        ((X, Y, X + np.nan, Y), {}, ValueError, "`test_embeddings` must be finite"),
        ((X, Y, X[:, :4], Y), {}, ValueError, "`train_embeddings` and `test_embeddings` must hav"),
        ((X, Y, X, Y), {"k": 9}, ValueError, "`k` must not exceed the number of means. .*means=8"),
        ((X, Y, X, Y), {"k": 0}, ValueError, "`k` must be positive integers"),
    ],
)
def test_rejects_wrong_input(arguments, options, error, message):
    with pytest.raises(error, match=message):
        nearest_class_mean(*arguments, **options)
