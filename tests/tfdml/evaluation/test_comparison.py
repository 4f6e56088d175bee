import contextlib
import json
import warnings

import numpy as np
import pytest

from tfdml.evaluation import (
    ScoredQueries,
    bootstrap_intervals,
    compare,
    comparison_table,
    load_queries,
    paired_bootstrap,
    recall_at_k,
    save_queries,
)

IMAGES = {"dataset": "cars196", "split": "test", "data_dir": None}


def hits_at_1(x, labels):
    """Per query, whether its nearest other row is of its class."""
    distances = ((x[:, None] - x[None]) ** 2).sum(axis=2)
    np.fill_diagonal(distances, np.inf)
    return labels[distances.argmin(axis=1)] == labels


@pytest.fixture
def labels(rng):
    labels = rng.integers(0, 15, 120) + 2**40
    labels[:2] = [7, 2**62]  # lonely ones
    return labels


@pytest.fixture
def runs(labels, rng):
    """Two models, the second of more noise, and a third with a score that the others lack."""
    centres = rng.normal(size=(120, 6))
    scored = {}
    for name, noise in (("a", 0.7), ("b", 0.9), ("c", 0.7)):
        rows = centres[np.unique(labels, return_inverse=True)[1]]
        rows = rows + noise * rng.normal(size=rows.shape)
        values = {"recall@1": hits_at_1(rows, labels).astype(float), "map": rng.random(120)}
        scored[name] = ScoredQueries(values, labels, IMAGES)
    scored["c"].values["mrr"] = rng.random(120)
    return scored


def test_a_file_keeps_scores_to_the_last_digit(labels, rng, tmp_path):
    path, rows = tmp_path / "evaluation_queries.npz", rng.normal(size=(120, 4))
    values = {"recall@1": hits_at_1(rows, labels), "ndcg@10": rng.random(120)}
    save_queries(path, {"old": values["recall@1"]}, labels, images={})
    save_queries(path, values, labels[:, None], images=IMAGES)
    read = load_queries(path)
    assert list(read.values) == list(values)
    for name, column in values.items():
        np.testing.assert_array_equal(read.values[name], column)
        assert read.values[name].dtype == np.float64
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert {1: float(read.values["recall@1"].mean())} == recall_at_k(rows, labels, k=1)
    assert read.labels.tolist() == labels.tolist()
    assert read.images == IMAGES
    assert list(tmp_path.iterdir()) == [path]


def test_a_crash_leaves_the_file_before(labels, tmp_path, monkeypatch):
    path = tmp_path / "evaluation_queries.npz"
    save_queries(path, {"map": np.ones(120)}, labels, images=IMAGES)

    def half_written(file, **_):
        file.write(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez_compressed", half_written)
    with pytest.raises(OSError, match="No space left"):
        save_queries(path, {"map": np.zeros(120)}, labels, images=IMAGES)
    assert load_queries(path).values["map"].mean() == 1
    assert list(tmp_path.iterdir()) == [path]


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
        for score, interval in bootstrap_intervals(values, labels, **options).items():
            assert scores[score]["score"] == float(values[score].mean())
            assert (scores[score]["low"], scores[score]["high"]) == interval
        differences = {score: numbers.get("difference") for score, numbers in scores.items()}
        expected = paired_bootstrap(values, base, labels, **options)
        assert differences == (dict.fromkeys(base) if name == "a" else expected)
    assert found["runs"]["b"]["recall@1"]["difference"]["high"] < 0


def test_the_table_marks_what_differs(runs):
    text = comparison_table(compare(runs)).splitlines()
    recalls = text[1:4]
    assert [line.split()[0] for line in recalls] == ["a", "b", "c"]
    assert [line.count("[") for line in recalls] == [1, 2, 2]
    assert recalls[1].endswith("] *")
    assert not recalls[2].endswith("*")
    assert text[-3].startswith("[ ]: 95% bootstrap intervals over classes")
    assert text[-2:] == [
        "*: the interval of the difference from a excludes 0.",
        "Not scored in all runs: mrr.",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": {**IMAGES, "split": "train"}}, r"split differs.*'a': 'test', 'b': 'train'"),
        ({"images": {"dataset": "cars196"}}, r"split differs.*'a': 'test', 'b': None"),
        ({"labels": np.arange(120)}, r"labels differ. Received: runs=\['a', 'b'\]"),
        ({"labels": np.arange(9)}, r"queries differs.*'a': 120, 'b': 9"),
        ({"values": {"other": np.ones(120)}}, r"score in common.*'b': \['other'\]"),
    ],
)
def test_rejects_runs_that_cannot_be_compared(change, message, runs):
    with pytest.raises(ValueError, match=message):
        compare({"a": runs["a"], "b": runs["b"]._replace(**change)})


def test_rejects_queries_of_other_names(runs):
    names = np.arange(120).astype(str)
    a, b = (runs["a"]._replace(ids=ids) for ids in (names, names[::-1]))
    with pytest.raises(ValueError, match=r"names of queries differ.*names={'a': '0', 'b': '119'}"):
        compare({"a": a, "b": b})
    compare({"a": a, "b": b._replace(ids=None)})


def test_keeps_large_labels_apart(runs):
    labels = np.full(120, 2**60) + np.arange(120)
    a, b = (runs["a"]._replace(labels=ids) for ids in (labels, labels[::-1]))
    with pytest.raises(ValueError, match="labels differ"):
        compare({"a": a, "b": b})


def test_rejects_no_runs(runs):
    with pytest.raises(ValueError, match=r"`runs` must be two or more. Received: runs=\['a'\]"):
        compare({"a": runs["a"]})
    with pytest.raises(TypeError, match=r"`runs` must be a dict\. Received: runs='list'"):
        compare([runs["a"], runs["b"]])


@pytest.mark.parametrize("name", ["labels", "images", "file", "allow_pickle"])
def test_rejects_names_that_are_taken(name, labels, tmp_path):
    with pytest.raises(ValueError, match=f"must not be named.*values=.'{name}'"):
        save_queries(tmp_path / "x.npz", {name: np.ones(120)}, labels, images=IMAGES)


def test_rejects_labels_of_other_queries(labels, tmp_path):
    with pytest.raises(
        ValueError, match=r"same number of queries\. Received: labels=120, values=2"
    ):
        save_queries(tmp_path / "x.npz", {"map": np.ones(2)}, labels, images=IMAGES)
    assert not list(tmp_path.iterdir())


def test_names_a_file_that_it_cannot_read(labels, tmp_path):
    path = tmp_path / "x.npz"
    with pytest.raises(FileNotFoundError, match=r"x\.npz"):
        load_queries(path)
    save_queries(path, {"map": np.ones(120)}, labels, images=IMAGES)
    whole = path.read_bytes()
    for content in (b"", b"no archive", whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(
            ValueError, match=r"x\.npz (is not an archive of per-query values|is damaged)"
        ):
            load_queries(path)
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
        with contextlib.suppress(ValueError):  # not every byte counts
            load_queries(path)
    for arrays in (
        {"embeddings": np.ones(3)},
        {"labels": labels, "images": "{}"},
        {"labels": labels, "images": "{", "map": np.ones(120)},
        {"labels": labels, "images": "{}", "map": np.ones(3)},
        {"labels": np.array([{}]), "images": "{}", "map": np.ones(1)},
    ):
        np.savez(path, **arrays)
        with pytest.raises(ValueError, match=r"x\.npz is not an archive of per-query values"):
            load_queries(path)
    np.save(tmp_path / "one.npy", labels)
    with pytest.raises(ValueError, match=r"one\.npy is not an archive of per-query values"):
        load_queries(tmp_path / "one.npy")
