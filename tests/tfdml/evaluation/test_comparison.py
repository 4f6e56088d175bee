import json
import tracemalloc

import numpy as np
import pytest

from tfdml.evaluation import (
    ScoredQueries,
    bootstrap_intervals,
    class_averages,
    compare,
    comparison_table,
    load_queries,
    macro_average,
    paired_bootstrap,
    save_queries,
)

IMAGES = {"dataset": "cars196", "split": "test", "data_dir": None}
NAMES = np.arange(120).astype(str)


@pytest.fixture
def labels(rng):
    labels = rng.integers(0, 15, 120) + 2**40
    labels[:2] = [7, 2**62]  # lonely ones
    return labels


@pytest.fixture
def runs(labels, rng):
    """Three models: a with names of its queries, b the worst, c with one more score."""
    scored = {}
    hits = rng.random(120) < 0.7
    for name, recall in (("a", hits), ("b", hits & (rng.random(120) < 0.7)), ("c", hits)):
        values = {"recall@1": recall, "map": rng.random(120), "ndcg@1": recall}
        scored[name] = ScoredQueries(values, labels, IMAGES)
    scored["c"].values["mrr"] = rng.random(120)
    return {**scored, "a": scored["a"]._replace(ids=NAMES)}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "evaluation_queries.npz"


def test_a_file_keeps_scores_to_the_last_digit(labels, rng, path):
    values = {"recall@1": rng.random(120) < 0.5, "ndcg@10": rng.random(120)}
    save_queries(path, {"old": values["recall@1"]}, labels, images={})
    assert load_queries(path).ids is None
    names = ["a/2 $x$.png", *NAMES[1:]]
    save_queries(path, values, labels[:, None], images=IMAGES, ids=names)
    read = load_queries(path)
    assert list(read.values) == list(values)
    for name, column in values.items():
        np.testing.assert_array_equal(read.values[name], column)
        assert read.values[name].dtype == np.float64
    assert read.labels.tolist() == labels.tolist()
    assert read.images == IMAGES
    assert read.ids.tolist() == names
    assert list(path.parent.iterdir()) == [path]


def test_compares_each_run_with_the_first(runs, labels):
    options = {"confidence": 0.9, "rounds": 200, "seed": 4}
    found = compare(runs, **options)
    assert json.loads(json.dumps(found)) == found
    assert {name: found[name] for name in options} == options
    assert (found["queries"], found["classes"]) == (120, len(set(labels.tolist())))
    assert found["images"] == IMAGES
    assert found["left_out"] == ["mrr"]
    base = runs["a"].values
    for name, scores in found["runs"].items():
        values = {score: runs[name].values[score] for score in base}
        assert list(scores) == list(base)
        intervals = bootstrap_intervals(values, labels, **options)
        differences = paired_bootstrap(values, base, labels, **options)
        for score, numbers in scores.items():
            assert numbers["score"] == float(values[score].mean())
            ends = numbers["low"], numbers["high"]
            assert ends == pytest.approx(intervals[score], abs=1e-12)
            expected = None if name == "a" else pytest.approx(differences[score], abs=1e-12)
            assert numbers.get("difference") == expected
    lines = comparison_table(found).splitlines()
    assert [line.endswith("*") for line in lines[1:4]] == [False, True, False]
    assert [line for line in lines if line in base] == ["recall@1", "map"]  # ndcg@1 is the same
    assert lines[-1] == "Not scored in all runs: mrr."


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": {**IMAGES, "split": "train"}}, "split differs.*'a': 'test', 'b': 'train'"),
        ({"labels": np.arange(120)}, "label of query 0 differs.*'a': 7, 'b': 0"),
        ({"labels": np.arange(9)}, r"queries differs.*'a': 120, 'b': 9"),
        ({"values": {"other": np.ones(120)}}, r"score in common.*'b': \['other'\]"),
        ({"ids": NAMES[::-1]}, "name of query 0 differs.*'a': '0', 'b': '119'"),
    ],
)
def test_rejects_runs_that_cannot_be_compared(changes, message, runs):
    with pytest.raises(ValueError, match=message):
        compare({"a": runs["a"], "b": runs["b"]._replace(**changes)})
    with pytest.raises(ValueError, match=r"`runs` must be two or more. Received: runs=\['a'\]"):
        compare({"a": runs["a"]})
    with pytest.raises(TypeError, match=r"`runs` must be a dict\. Received: runs='list'"):
        compare([runs["a"], runs["b"]])


@pytest.mark.parametrize(
    ("values", "ids", "message"),
    [
        ({"ids": np.ones(120)}, None, "must not be named.*values=.'ids'"),
        ({"map": np.ones(2)}, None, r"same number of queries\. Received: labels=120, values=2"),
        ({"map": np.ones(120)}, ["a", "b"], r"`ids` .* Received: ids=2, labels=120"),
    ],
)
def test_rejects_what_it_cannot_write(values, ids, message, labels, path):
    with pytest.raises(ValueError, match=message):
        save_queries(path, values, labels, images=IMAGES, ids=ids)
    assert not path.exists()


def test_names_a_file_that_it_cannot_read(labels, path):
    with pytest.raises(FileNotFoundError, match=r"queries\.npz"):
        load_queries(path)
    save_queries(path, {"map": np.ones(120)}, labels, images=IMAGES)
    whole, contents = path.read_bytes(), [b"", b"no archive"]
    for arrays in (
        {"embeddings": np.ones(3)},
        {"labels": labels, "images": "{", "map": np.ones(120)},
        {"labels": labels, "images": "[]", "map": np.ones(120)},
        {"labels": labels, "images": "{}", "map": np.ones(3)},
    ):
        np.savez(path, **arrays)
        contents.append(path.read_bytes())
    np.save(path.with_suffix(".npy"), labels)
    contents += [path.with_suffix(".npy").read_bytes(), whole[: len(whole) // 2]]
    for content in contents:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"queries\.npz is not an .* values, or damaged \("):
            load_queries(path)


GOOD = {"map": np.array([0.5, 1.0, 0.25])}


def means_by_loops(values, labels, rounds, seed):
    """Means of rounds of drawn classes, each a list of the values of all that were drawn."""
    rng = np.random.default_rng(seed)
    groups = [[q] for q in range(len(values))]
    if labels is not None:
        groups = [[q for q in range(len(labels)) if labels[q] == c] for c in sorted(set(labels))]
    means = []
    for _ in range(rounds):
        drawn = rng.integers(0, len(groups), len(groups))
        queries = [q for group in drawn for q in groups[group]]
        means.append(sum(float(values[q]) for q in queries) / len(queries))
    return np.array(means)


@pytest.mark.parametrize("by_class", [True, False])
def test_equals_loops(by_class, labels, rng):
    labels = labels.tolist() if by_class else None
    values = {"map": rng.random(120), "recall@1": rng.random(120) < 0.5}
    baseline = {"recall@1": rng.random(120) < 0.5, "map": rng.random(120)}
    options = {"confidence": 0.8, "rounds": 60, "seed": 3}
    intervals = bootstrap_intervals(values, labels, **options)
    differences = paired_bootstrap(values, baseline, labels, **options)
    assert list(intervals) == list(differences) == list(values)
    for name, interval in intervals.items():
        means = means_by_loops(values[name], labels, 60, 3)
        assert interval == pytest.approx(np.quantile(means, [0.1, 0.9]), abs=1e-12)
        assert all(type(end) is float for end in interval)
        difference = values[name].astype(float) - baseline[name]
        means = means_by_loops(difference, labels, 60, 3)
        low, high = np.quantile(means, [0.1, 0.9])
        p = min(1, 2 * (1 + min(sum(means <= 0), sum(means >= 0))) / 61)
        expected = {"difference": difference.mean(), "low": low, "high": high, "p": p}
        assert differences[name] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("value", "by_class"), [(0.0, True), (0.1, False), (1 / 3, True)])
def test_equal_values_have_no_width(value, by_class, labels):
    values, labels = {"map": np.full(120, value)}, labels if by_class else None
    assert bootstrap_intervals(values, labels) == {"map": (value, value)}
    found = paired_bootstrap(values, values, labels)
    assert found == {"map": {"difference": 0.0, "low": 0.0, "high": 0.0, "p": 1.0}}


def test_draws_many_queries_in_blocks_of_rounds(rng):
    values = {name: rng.random(60_502) for name in "abcdefghij"}
    tracemalloc.start()
    found = bootstrap_intervals(values, rounds=40, seed=2)["c"]
    assert tracemalloc.get_traced_memory()[1] < 150e6
    tracemalloc.stop()
    drawn = np.random.default_rng(2).integers(0, 60_502, (40, 60_502))
    expected = np.quantile(values["c"][drawn].mean(axis=1), [0.025, 0.975])
    assert found == pytest.approx(expected, abs=1e-12)


ONE = {"map": np.ones(1)}


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"values": [0.5]}, TypeError, "`values` must be a dict of one array .*: values='list'"),
        ({"values": {}}, ValueError, r"`values` must hold scores of shape \(n,\).*: values={}"),
        ({"values": {**GOOD, "mrr": np.zeros(2)}}, ValueError, r"'mrr': \('float64', \(2,\)\)"),
        ({"values": {"mrr": [0, np.nan]}}, ValueError, r"finite. Received: not_finite=\['mrr'\]"),
        ({"values": ONE, "baseline": ONE}, ValueError, "two queries or more. Rec.* queries=1"),
        ({"labels": np.zeros(3, int)}, ValueError, "two classes or more. Received: classes=1"),
        ({"labels": np.zeros(4, int)}, ValueError, "of queries. Received: labels=4, values=3"),
        ({"confidence": 1}, ValueError, "must be > 0 and < 1. Received: confidence=1"),
        ({"confidence": np.nan}, ValueError, "`confidence` must be finite"),
        ({"rounds": 0}, ValueError, "`rounds` must be an integer >= 1. Received: rounds=0"),
        ({"rounds": 39}, ValueError, "leave 2 or more means .* rounds=39, confidence=0.95"),
        ({"baseline": {"x": GOOD["map"]}}, ValueError, r"same names .* baseline=\['x'\]"),
        ({"baseline": {"map": np.zeros(2)}}, ValueError, r"queries\. Rec.* queries=\(3, 2\)"),
        ({"baseline": None}, TypeError, "`baseline` must be a dict"),
    ],
)
def test_rejects_wrong_values_and_options(changes, error, message):
    with pytest.raises(error, match=message):
        paired_bootstrap(**{"values": GOOD, "baseline": GOOD, **changes})


def test_averages_equal_loops(rng):
    values, labels = rng.random(200), rng.integers(0, 20, (200, 1)) + 2**60
    classes, means, counts = class_averages(values, labels)
    members = [values[labels[:, 0] == one] for one in sorted(set(labels.ravel().tolist()))]
    assert classes.tolist() == sorted(set(labels.ravel().tolist()))
    assert means == pytest.approx([sum(of) / len(of) for of in members])
    assert counts.tolist() == [len(of) for of in members]
    assert macro_average(values, labels) == pytest.approx(sum(means) / len(means))
    assert type(macro_average([True, False], [1, 1])) is float
    with pytest.raises(ValueError, match=r"queries\. Received: labels=1, values=2"):
        class_averages([1.0, 2.0], [1])
