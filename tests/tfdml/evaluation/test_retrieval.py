import itertools
import json
import math
import pathlib
import warnings

import numpy as np
import pytest
from ranking_loops import grid, nearness, ranks_by_loops, uneven_labels

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


def values_of_query(ranks, k):
    """Every metric from the ranks of the relevant rows of a query, by its formula."""
    relevant = len(ranks)
    shares = [place / rank for place, rank in enumerate(ranks, start=1)]
    near = sum(rank <= relevant for rank in ranks)
    values = {"map": sum(shares), "map@r": sum(shares[:near]), "r_precision": near}
    values = {name: total / max(relevant, 1) for name, total in values.items()}
    values["mrr"] = 1 / ranks[0] if ranks else 0
    for count in k:
        found = [rank for rank in ranks if rank <= count]
        ideal = sum(1 / math.log2(place + 1) for place in range(1, min(relevant, count) + 1))
        values[f"recall@{count}"] = float(bool(found))
        values[f"precision@{count}"] = len(found) / count
        values[f"ndcg@{count}"] = sum(1 / math.log2(rank + 1) for rank in found) / (ideal or 1)
    return values


def by_loops(scores, labels, k, gallery_labels, excluded):
    """{name: (n,) values} of a table of scores."""
    ranks = [[] for _ in labels]
    for query, _, rank in ranks_by_loops(scores, labels, gallery_labels, excluded):
        ranks[query].append(rank)
    rows = [values_of_query(each, k) for each in ranks]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def assert_equal(scores, expected):
    assert set(scores) <= set(expected)
    for name in scores:
        np.testing.assert_allclose(scores[name], expected[name], rtol=1e-12, atol=0, err_msg=name)


def some_rows(points, rng):
    x = {
        "spread": lambda: rng.normal(size=(60, 6)),
        "grid": lambda: grid(rng),
        "collapsed": lambda: np.full((60, 4), 0.3),
        "half zero": lambda: rng.normal(size=(60, 4)) * (np.arange(60) % 2)[:, None],
    }[points]()
    return x, uneven_labels(rng)


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
    ("points", "dtype", "similarity", "grouped", "sizes"),
    [
        *((of, "float64", None, False, "as is") for of in ("spread", "collapsed", "half zero")),
        *(("spread", dtype, None, False, "as is") for dtype in ("float16", "float32")),
        ("spread", "float64", None, False, "small"),
        *(
            ("grid", "float64", *each)
            for each in itertools.product((None, nearness), (False, True), ("as is", "small"))
        ),
    ],
    indirect=["sizes"],
)
def test_equals_loops(points, dtype, similarity, grouped, sizes, rng):
    x, labels = some_rows(points, rng)
    x, query, k = x.astype(dtype), np.arange(60) % 3 == 0, (1, 2, 5)
    table, others = nearness(x, x), np.ix_(query, ~query)
    groups = rng.integers(0, 3, 60) + 2**60 if grouped else np.arange(60)
    excluded = (labels[:, None] == labels) & (groups[:, None] == groups)
    expected = by_loops(table, labels, k, labels, excluded)
    in_gallery = by_loops(table[others], labels[query], k, labels[~query], excluded[others])
    (rows, ids), gallery = apart(x, labels[:, None], query)
    among = {"groups": groups} if grouped else {}
    gallery |= {"groups": groups[query], "gallery_groups": groups[~query]} if grouped else {}
    # Of any dtype, whose rows stay as they are.
    gallery["gallery_embeddings"] = gallery["gallery_embeddings"].astype("float64")
    for given in (x, rows, gallery["gallery_embeddings"]):
        given.flags.writeable = False
    # Alone, as each needs other ranks.
    for metrics in [None, *METRICS] if sizes == "as is" else [None, "recall", "map@r"]:
        options = {"k": k, "metrics": metrics, "similarity": similarity}
        assert_equal(retrieval_scores_per_query(x, labels, **options, **among), expected)
        assert_equal(retrieval_scores_per_query(rows, ids, **options, **gallery), in_gallery)


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


def test_each_metric_has_its_function_with_the_arguments_of_all(rng):
    functions = {
        "recall": recall_at_k,
        "precision": precision_at_k,
        "map": mean_average_precision,
        "map@r": map_at_r,
        "r_precision": r_precision,
        "mrr": mean_reciprocal_rank,
        "ndcg": ndcg_at_k,
    }
    x, labels = some_rows("spread", rng)
    options = {
        "gallery_embeddings": x[20:],
        "gallery_labels": labels[20:],
        "groups": np.arange(20) % 3,
        "gallery_groups": np.arange(40) % 3,
        "similarity": nearness,
    }
    found = {}
    for name, function in functions.items():
        values = function(x[:20], labels[:20], **options)
        at_k = isinstance(values, dict)
        found |= {f"{name}@{k}": values[k] for k in values} if at_k else {name: values}
        with pytest.raises(TypeError, match=r"retrieval_scores\(\) got an unexpected .*'kk'"):
            function(x, labels, kk=3)
    assert found == retrieval_scores(x[:20], labels[:20], **options)
    assert {type(value) for value in found.values()} == {float}


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


X, Y = np.zeros((8, 5)), np.arange(8) // 2
GALLERY = {"gallery_embeddings": X, "gallery_labels": Y}


@pytest.mark.parametrize(
    ("changes", "error", "message"),
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
        ({"labels": Y[:7]}, ValueError, r"same batch size. Received: labels.shape=\(7,\)"),
        ({"labels": Y / 2}, TypeError, r"`labels` must be integers. Received: dtype=float64 \(arg"),
        ({"labels": Y.astype(str)}, TypeError, r"integers; convert names by np\.unique\(labels, "),
        ({"labels": np.eye(8)}, TypeError, r"integers; convert one-hot rows by np\.argmax\(lab"),
        ({"labels": np.eye(8, dtype=int)}, ValueError, r"\(n, 1\); convert one-hot rows by "),
        ({"embeddings": Y[:, None]}, TypeError, "`embeddings` must be floats. Rec.*dtype=int64"),
        ({"embeddings": X[0]}, ValueError, r"`embeddings` must have shape \(n, dim\)"),
        ({"embeddings": X + np.nan}, ValueError, "`embeddings` must be finite. Rec.*rows_not_fin"),
    ],
)
def test_rejects_wrong_rows_and_options(changes, error, message):
    with pytest.raises(error, match=message):
        retrieval_scores(**{"embeddings": X, "labels": Y, **changes})
