import json
import math
import pathlib
import warnings

import numpy as np
import pytest

from tfdml.evaluation import (
    apart,
    map_at_r,
    mean_average_precision,
    mean_reciprocal_rank,
    ndcg_at_k,
    precision_at_k,
    r_precision,
    recall_at_k,
    retrieval_scores,
    retrieval_scores_per_query,
)
from tfdml.evaluation.metrics import METRICS

pytestmark = pytest.mark.filterwarnings("ignore:.*have no other row")

GOLDEN = json.loads((pathlib.Path(__file__).parents[2] / "golden" / "golden.json").read_text())


def values_of_query(hits, relevant, k):
    """Every metric from a ranked list of hits, by its definition in words."""
    found = [rank for rank, hit in enumerate(hits, start=1) if hit]
    precision = {rank: sum(hits[:rank]) / rank for rank in found}
    values = {}
    for count in k:
        gains = sum(1 / math.log2(rank + 1) for rank in found if rank <= count)
        ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(relevant, count) + 1))
        values[f"recall@{count}"] = float(any(hits[:count]))
        values[f"precision@{count}"] = sum(hits[:count]) / count
        values[f"ndcg@{count}"] = gains / ideal if relevant else 0
    shares = [precision[rank] for rank in found]
    values["map"] = sum(shares) / relevant if relevant else 0
    near = [precision[rank] for rank in found if rank <= relevant]
    values["map@r"] = sum(near) / relevant if relevant else 0
    values["r_precision"] = sum(hits[:relevant]) / relevant if relevant else 0
    values["mrr"] = 1 / found[0] if found else 0
    return values


def brute_force(scores, labels, k, gallery_labels=None, groups=None, gallery_groups=None):
    """Loops over queries and gallery of a table of scores, ties ranked against the query."""
    own = gallery_labels is None
    if own:
        gallery_labels, gallery_groups = labels, groups
    rows = []
    for q, row in enumerate(scores):
        ranked = []
        for j, score in enumerate(row):
            relevant = int(gallery_labels[j]) == int(labels[q])
            same_group = groups is not None and int(gallery_groups[j]) == int(groups[q])
            if not (own and j == q) and not (relevant and same_group):
                ranked.append((-float(score), relevant))
        hits = [relevant for _, relevant in sorted(ranked)]
        rows.append(values_of_query(hits, sum(hits), k))
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def similarities(queries, gallery):
    """A table of minus the squared distances, by a loop in float64."""
    queries, gallery = queries.astype(np.float64), gallery.astype(np.float64)
    return np.array([[-np.square(b - a).sum() for b in gallery] for a in queries])


def assert_equal(scores, expected):
    assert set(scores) <= set(expected)
    for name in scores:
        np.testing.assert_allclose(scores[name], expected[name], rtol=1e-12, atol=0, err_msg=name)


def some_rows(kind, rng, rows=60):
    """Rows of nine uneven classes of huge ids, three of them alone."""
    x = {
        "spread": lambda: rng.normal(size=(rows, 6)),
        "grid": lambda: rng.integers(0, 3, (rows, 3)).astype(float),  # many exact ties
        "duplicates": lambda: np.repeat(rng.normal(size=(rows // 3, 6)), 3, axis=0),
        "far": lambda: rng.normal(size=(rows, 6)) + 1000,
        "one far": lambda: rng.normal(size=(rows, 6)) * ([[1e4]] + [[1]] * (rows - 1)),
        "tiny": lambda: rng.normal(size=(rows, 6)) * 1e-30,
        "collapsed": lambda: np.full((rows, 4), 0.3),
        "half zero": lambda: rng.normal(size=(rows, 4)) * (np.arange(rows) % 2)[:, None],
    }[kind]()
    labels = (9 * rng.random(rows) ** 2).astype(int) + 2**60
    labels[:3] = [1, 2, 2**62]
    return x, labels


KINDS = ["spread", "grid", "duplicates", "far", "one far", "tiny", "collapsed", "half zero"]


def test_equals_the_golden_values():
    inputs, expected = GOLDEN["inputs"]["E"], GOLDEN["metrics"]
    x, y = np.array(inputs["X"]), np.array(inputs["y"])
    assert mean_average_precision(x, y) == pytest.approx(expected["map_full"], abs=1e-12)
    for count, score in expected["recall_at_k"].items():
        assert recall_at_k(x, y, k=int(count)) == {int(count): pytest.approx(score, abs=1e-12)}
    query = np.isin(np.arange(12), [0, 3, 6, 9])
    gallery = {"gallery_embeddings": x[~query], "gallery_labels": y[~query]}
    assert mean_average_precision(x[query], y[query], **gallery) == expected["qg_map"]
    for count, score in expected["qg_recall"].items():
        assert recall_at_k(x[query], y[query], k=int(count), **gallery)[int(count)] == score


@pytest.mark.parametrize(
    ("kind", "dtype", "similarity", "sizes"),
    [
        *((kind, "float64", None, "as is") for kind in KINDS),
        *(("spread", dtype, None, "as is") for dtype in ("float16", "float32")),
        *((kind, "float64", similarities, "as is") for kind in ("grid", "collapsed", "half zero")),
        *((kind, "float64", None, "small") for kind in ("spread", "grid")),
        ("grid", "float64", similarities, "small"),
    ],
    indirect=["sizes"],
)
def test_equals_loops(kind, dtype, similarity, sizes, rng):
    x, labels = some_rows(kind, rng)
    x, query = x.astype(dtype), np.arange(60) % 3 == 0
    table, k = similarities(x, x), (1, 2, 5)
    expected = brute_force(table, labels, k)
    data, gallery = apart(x, labels, query)
    in_gallery = brute_force(table[np.ix_(query, ~query)], labels[query], k, labels[~query])
    # Alone, as each needs other ranks.
    for metrics in [None, *METRICS] if sizes == "as is" else [None, "recall", "map@r"]:
        options = {"k": k, "metrics": metrics, "similarity": similarity}
        assert_equal(retrieval_scores_per_query(x, labels, **options), expected)
        assert_equal(retrieval_scores_per_query(*data, **options, **gallery), in_gallery)


@pytest.mark.parametrize("similarity", [None, similarities])
def test_groups_take_no_rank(similarity, sizes, rng):
    x, labels = some_rows("grid", rng)
    groups, query = rng.integers(0, 3, 60) + 2**60, np.arange(60) % 3 == 0
    table = similarities(x, x)
    expected = brute_force(table, labels, (1, 4), groups=groups)
    plain = brute_force(table, labels, (1, 4))
    assert any((expected[name] != plain[name]).any() for name in expected)
    ids = labels[query], (1, 4), labels[~query], groups[query], groups[~query]
    in_gallery = brute_force(table[np.ix_(query, ~query)], *ids)
    data, gallery = apart(x, labels, query)
    gallery |= {"groups": groups[query], "gallery_groups": groups[~query]}
    for metrics in (None, "recall", "precision"):
        options = {"k": (1, 4), "similarity": similarity, "metrics": metrics}
        assert_equal(retrieval_scores_per_query(x, labels, groups=groups, **options), expected)
        assert_equal(retrieval_scores_per_query(*data, **gallery, **options), in_gallery)


@pytest.mark.parametrize("per_class", [2, 40])
def test_perfect_embeddings_score_exactly_one(per_class, rng):
    labels = np.repeat(np.arange(6), per_class)
    x = rng.normal(size=(6, 8))[labels] * 100 + 1e-3 * rng.normal(size=(len(labels), 8))
    scores = retrieval_scores(x, labels, k=(1, 4, 11))
    for count in (1, 4, 11):
        # No more than the R relevant rows can be among K.
        expected = pytest.approx(min(1, (per_class - 1) / count), rel=1e-12)
        assert scores.pop(f"precision@{count}") == expected
    assert set(scores.values()) == {1.0}
    assert precision_at_k(x, labels, k=1) == {1: 1.0}


@pytest.mark.parametrize("scores_of", [retrieval_scores, retrieval_scores_per_query])
def test_names_come_in_the_order_asked_for(scores_of, rng):
    x, labels = rng.normal(size=(20, 3)), np.arange(20) % 5
    scores = scores_of(x, labels, k=(4, 2, 4), metrics=("mrr", "recall", "mrr"))
    assert list(scores) == ["mrr", "recall@2", "recall@4"]
    everything = "recall@1", "precision@1", "map", "map@r", "r_precision", "mrr", "ndcg@1"
    assert tuple(scores_of(x, labels, k=1)) == everything


FUNCTIONS = {
    "recall": recall_at_k,
    "precision": precision_at_k,
    "ndcg": ndcg_at_k,
    "map": mean_average_precision,
    "map@r": map_at_r,
    "r_precision": r_precision,
    "mrr": mean_reciprocal_rank,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_metric_has_its_function_with_the_arguments_of_all(name, rng):
    function, at_k = FUNCTIONS[name], name in ("recall", "precision", "ndcg")
    x, labels = some_rows("spread", rng)
    with pytest.raises(TypeError, match=r"retrieval_scores\(\) got an unexpected .*'kk'"):
        function(x, labels, kk=3)
    options = {
        "gallery_embeddings": x[20:],
        "gallery_labels": labels[20:],
        "groups": np.arange(20) % 3,
        "gallery_groups": np.arange(40) % 3,
        "similarity": similarities,
    }
    scores = retrieval_scores(x[:20], labels[:20], **options)
    values = function(x[:20], labels[:20], **options)
    if at_k:
        values = {f"{name}@{k}": value for k, value in values.items()}
        assert values == {of: scores[of] for of in scores if of.startswith(f"{name}@")}
    else:
        assert (values, type(values)) == (scores[name], float)


def test_ids_of_signed_and_unsigned_integers_are_compared_exactly():
    x, ids = np.array([[0.0], [1.0], [5.0]]), np.array([2**63, 2**63 + 1, 3], "uint64")
    gallery = {"gallery_embeddings": x, "gallery_labels": ids}
    gallery["gallery_groups"] = np.array([2**63 + 2, 2**63 + 1, 3], "uint64")
    data = np.array([[0.0], [5.0]]), np.array([2**63, 3], "uint64")
    scores = retrieval_scores_per_query(*data, k=1, groups=np.array([-1, 3]), **gallery)
    # The only row of class 3 is of the query's group.
    assert scores["recall@1"].tolist() == [1, 0]


def test_reports_queries_without_a_relevant_row(rng):
    warnings.simplefilter("default")
    x, labels = np.array([[0.0], [0.1], [9.0]]), np.array([0, 0, 1])
    for scores_of in (retrieval_scores, retrieval_scores_per_query, map_at_r, recall_at_k):
        with pytest.warns(UserWarning, match="1 of 3 queries have no other row") as reported:
            scores_of(x, labels, **({} if scores_of is map_at_r else {"k": 1}))
        assert reported[0].filename == __file__
    with pytest.warns(UserWarning, match="2 of 2 queries"):
        assert map_at_r(x[:2], labels[:2], groups=np.zeros(2, int)) == 0


def test_queries_and_gallery_may_differ_in_type_and_stay_as_they_are(rng):
    x, gallery = (rng.normal(size=(n, 6)).astype("float32") for n in (60, 90))
    labels, gallery_labels = rng.integers(0, 5, 60), rng.integers(0, 5, 90)
    found = []
    for types in (("f4", "f4"), ("f4", "f8"), ("f8", "f4")):
        given = [rows.astype(dtype) for rows, dtype in zip((x, gallery), types, strict=True)]
        for rows in given:
            rows.flags.writeable = False
        others = {"gallery_embeddings": given[1], "gallery_labels": gallery_labels}
        found.append(retrieval_scores_per_query(given[0], labels, k=1, **others))
    for values in found[1:]:
        assert_equal(values, found[0])


X, Y = np.zeros((8, 5)), np.arange(8) // 2
GALLERY = {"gallery_embeddings": X, "gallery_labels": Y}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"metrics": "recal"}, ValueError, "Unknown metric 'recal'. Did you mean 'recall'?"),
        ({"metrics": ()}, ValueError, r"`metrics` must not be empty. Received: metrics=\(\)"),
        ({"k": 8}, ValueError, "must not exceed the gallery size.*gallery_size=7"),
        ({"k": 0}, ValueError, "`k` must be positive integers. Received: k=0"),
        ({"gallery_labels": Y}, ValueError, "must be given together"),
        ({**GALLERY, "gallery_embeddings": X[:, :4]}, ValueError, "must have the same dim"),
        ({"groups": Y[:7]}, ValueError, "`groups` and `labels` must have the same batch size"),
        ({"gallery_groups": Y}, ValueError, "`gallery_groups` requires a gallery"),
        ({**GALLERY, "groups": Y}, ValueError, "be given together if .*missing=.*gallery_groups"),
    ],
)
def test_rejects_wrong_options(options, error, message):
    with pytest.raises(error, match=message):
        retrieval_scores(X, Y, **options)


@pytest.mark.parametrize(
    ("x", "labels", "error", "message"),
    [
        (X, Y[:7], ValueError, r"same batch size. Received: labels.shape=\(7,\)"),
        (X, Y / 2, TypeError, r"`labels` must be integers. Received: dtype=float64 \(arg"),
        (X, Y.astype(str), TypeError, r"integers; convert names by np\.unique\(labels, "),
        (X, np.eye(8), TypeError, r"integers; convert one-hot rows by np\.argmax\(labels, "),
        (X, np.eye(8, dtype=int), ValueError, r"\(n, 1\); convert one-hot rows by "),
        (Y[:, None], Y, TypeError, "`embeddings` must be floats. Received: dtype=int64"),
        (X[0], Y, ValueError, r"`embeddings` must have shape \(n, dim\)"),
        (X + np.nan, Y, ValueError, "`embeddings` must be finite. Received: rows_not_fin"),
    ],
)
def test_rejects_wrong_rows(x, labels, error, message):
    with pytest.raises(error, match=message):
        recall_at_k(x, labels)
