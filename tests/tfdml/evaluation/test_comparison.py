import contextlib
import json

import numpy as np
import pytest

from tfdml.evaluation import (
    ScoredQueries,
    bootstrap_intervals,
    compare,
    comparison_table,
    load_queries,
    paired_bootstrap,
    save_queries,
)

IMAGES = {"dataset": "cars196", "split": "test", "data_dir": None}


@pytest.fixture
def labels(rng):
    labels = rng.integers(0, 15, 120) + 2**40
    labels[:2] = [7, 2**62]  # lonely ones
    return labels


@pytest.fixture
def runs(labels, rng):
    """Three models, b the worst, and c with a score that the others lack."""
    scored = {}
    hits = rng.random(120) < 0.7
    for name, recall in (("a", hits), ("b", hits & (rng.random(120) < 0.7)), ("c", hits)):
        values = {"recall@1": recall, "map": rng.random(120)}
        scored[name] = ScoredQueries(values, labels, IMAGES)
    scored["c"].values["mrr"] = rng.random(120)
    return scored


@pytest.fixture
def path(tmp_path):
    return tmp_path / "evaluation_queries.npz"


def test_a_file_keeps_scores_to_the_last_digit(labels, rng, path):
    values = {"recall@1": rng.random(120) < 0.5, "ndcg@10": rng.random(120)}
    save_queries(path, {"old": values["recall@1"]}, labels, images={})
    save_queries(path, values, labels[:, None], images=IMAGES)
    read = load_queries(path)
    assert list(read.values) == list(values)
    for name, column in values.items():
        np.testing.assert_array_equal(read.values[name], column)
        assert read.values[name].dtype == np.float64
    assert read.labels.tolist() == labels.tolist()
    assert read.images == IMAGES
    assert read.ids is None
    assert list(path.parent.iterdir()) == [path]


def test_reads_archives_of_earlier_versions(labels, path):
    """With the columns before the labels, and neither digests nor names."""
    np.savez(path, map=np.ones(120), labels=labels, images='{"dataset": "cars196"}')
    read = load_queries(path)
    assert (list(read.values), read.images, read.ids) == (["map"], {"dataset": "cars196"}, None)


def test_a_crash_leaves_the_file_before(labels, path, monkeypatch):
    save_queries(path, {"map": np.ones(120)}, labels, images=IMAGES)
    monkeypatch.setattr(np, "savez_compressed", lambda file, **_: [file.write(b"half"), 1 / 0])
    with pytest.raises(ZeroDivisionError):
        save_queries(path, {"map": np.zeros(120)}, labels, images=IMAGES)
    assert load_queries(path).values["map"].mean() == 1
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
    assert lines[-1] == "Not scored in all runs: mrr."


LARGE = 2**60 + np.arange(120)
NAMES = np.arange(120).astype(str)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({}, {"images": {**IMAGES, "split": "train"}}, "split differs.*'a': 'test', 'b': 'train'"),
        ({}, {"images": {"dataset": "cars196"}}, r"split differs.*'a': 'test', 'b': None"),
        ({}, {"labels": np.arange(120)}, "label of query 0 differs.*'a': 7, 'b': 0"),
        ({}, {"labels": np.arange(9)}, r"queries differs.*'a': 120, 'b': 9"),
        ({}, {"values": {"other": np.ones(120)}}, r"score in common.*'b': \['other'\]"),
        ({"ids": NAMES}, {"ids": NAMES[::-1]}, "name of query 0 differs.*'a': '0', 'b': '119'"),
        ({"labels": LARGE}, {"labels": LARGE[::-1]}, "label of query 0 differs"),
    ],
)
def test_rejects_runs_that_cannot_be_compared(first, second, message, runs):
    runs = {"a": runs["a"]._replace(**first), "b": runs["b"]._replace(**second)}
    with pytest.raises(ValueError, match=message):
        compare(runs)


def test_needs_two_runs_of_which_some_may_lack_names(runs):
    compare({"a": runs["a"]._replace(ids=NAMES), "b": runs["b"]}, rounds=40)
    with pytest.raises(ValueError, match=r"`runs` must be two or more. Received: runs=\['a'\]"):
        compare({"a": runs["a"]})
    with pytest.raises(TypeError, match=r"`runs` must be a dict\. Received: runs='list'"):
        compare([runs["a"], runs["b"]])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"ids": np.ones(120)}, "must not be named.*values=.'ids'"),
        ({"file": np.ones(120)}, "must not be named.*values=.'file'"),
        ({"map": np.ones(2)}, r"same number of queries\. Received: labels=120, values=2"),
    ],
)
def test_rejects_what_it_cannot_write(values, message, labels, path):
    with pytest.raises(ValueError, match=message):
        save_queries(path, values, labels, images=IMAGES)
    assert not path.exists()


def test_names_a_file_that_it_cannot_read(labels, path):
    with pytest.raises(FileNotFoundError, match=r"queries\.npz"):
        load_queries(path)
    save_queries(path, {"map": np.ones(120)}, labels, images=IMAGES)
    whole, contents = path.read_bytes(), [b"", b"no archive"]
    for arrays in (
        {"embeddings": np.ones(3)},
        {"labels": labels, "images": "{}"},
        {"labels": labels, "images": "{", "map": np.ones(120)},
        {"labels": labels, "images": "[]", "map": np.ones(120)},
        {"labels": labels, "images": "{}", "map": np.ones(3)},
        {"labels": np.array([{}]), "images": "{}", "map": np.ones(1)},
    ):
        np.savez(path, **arrays)
        contents.append(path.read_bytes())
    np.save(path.with_suffix(".npy"), labels)
    contents += [path.with_suffix(".npy").read_bytes(), whole[: len(whole) // 2]]
    for content in contents:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"queries\.npz is not an .* values, or damaged \("):
            load_queries(path)
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
        with contextlib.suppress(ValueError):  # not every byte counts
            load_queries(path)


def test_the_table_leaves_out_what_equals_recall_at_1():
    score = {"score": 0.5, "low": 0.4, "high": 0.6}
    scores = dict.fromkeys(("recall@1", "precision@1", "ndcg@1", "map"), score)
    comparison = {"runs": {"a": scores, "b": scores}, "confidence": 0.95, "left_out": []}
    lines = comparison_table(comparison).splitlines()
    assert [line for line in lines if line in scores] == ["recall@1", "map"]


def test_the_values_of_queries_carry_their_ids(labels, path):
    names = ["a/2 $x$.png", *NAMES[1:]]
    save_queries(path, {"map": np.ones(120)}, labels, images={}, ids=names)
    assert load_queries(path).ids.tolist() == names
    with pytest.raises(ValueError, match=r"`ids` .* Received: ids=2, labels=120"):
        save_queries(path, {"map": np.ones(120)}, labels, images={}, ids=names[:2])
