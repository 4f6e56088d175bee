import itertools

import numpy as np
import pytest
from mean_loops import hits_by_loops

from tfdml.evaluation import (
    class_means,
    every_nth_child,
    read_hierarchy,
    zero_shot_accuracy,
    zero_shot_means,
    zero_shot_per_query,
)
from tfdml.evaluation.zero_shot import by_class_id, zero_shot_scores
from tfdml.runs.printed import results_text


def steps_up(hierarchy, node, steps=1):
    """{ancestor: fewest steps}, by walking every way up."""
    found, above = {}, hierarchy.get(node, ())
    for parent in above if isinstance(above, tuple) else (above,):
        ways = {parent: steps} | steps_up(hierarchy, parent, steps + 1)
        found |= {each: min(count, found.get(each, 99)) for each, count in ways.items()}
    return found


def means_by_loops(means, hierarchy, unseen, ancestors, weights, include_roots):
    placed = []
    for z in unseen:
        steps, node_means = steps_up(hierarchy, z), {}
        for a in steps:
            below = [mean for c, mean in means.items() if a in steps_up(hierarchy, c)]
            if below and (include_roots or a in hierarchy):
                node_means[a] = sum(below) / len(below)
        nearest = min(steps[a] for a in node_means)
        chosen = [a for a in node_means if ancestors == "all" or steps[a] == nearest]
        shares = [1 / steps[a] if weights == "depth" else 1 for a in chosen]
        total = sum(share * node_means[a] for a, share in zip(chosen, shares, strict=True))
        placed.append(total / sum(shares))
    return np.array(placed)


@pytest.fixture
def data(rng):
    """Rows of 12 trained and 9 unseen classes, and a hierarchy of all.

    Classes have one or two of 6 families, which have one or two of 3 orders, under one root. One
    family is also right below it.
    """
    trained, unseen = [2**40 + i for i in range(12)], [2**53 + i for i in range(9)]
    hierarchy = {f"family {i}": (f"order {i % 3}",) for i in range(6)}
    hierarchy |= {"family 4": ("order 1", "root"), "family 5": ("order 2", "order 0")}
    hierarchy |= {f"order {i}": "root" for i in range(3)}
    for node in (*trained, *unseen):
        families = rng.choice(6, size=rng.integers(1, 3), replace=False)
        hierarchy[node] = tuple(f"family {i}" for i in families)
    labels, unseen_labels = rng.permutation(trained * 4), rng.permutation(unseen * 5)
    return rng.normal(size=(48, 4)), labels, hierarchy, rng.normal(size=(45, 4)), unseen_labels


@pytest.mark.parametrize(
    "values", itertools.product(("all", "parent"), ("equal", "depth"), (True, False)), ids=str
)
def test_places_and_scores_classes_as_loops_do(data, values, rng):
    options = dict(zip(("ancestors", "weights", "include_roots"), values, strict=True))
    rows, labels, hierarchy, unseen_rows, unseen_labels = data
    ids, means = class_means(rows, labels)
    unseen, order = rng.permutation(np.unique(unseen_labels)), rng.permutation(len(ids))
    placed = zero_shot_means(means, ids, hierarchy, unseen, **options)
    means_by_id = dict(zip(ids.tolist(), means, strict=True))
    expected = means_by_loops(means_by_id, hierarchy, unseen.tolist(), **options)
    np.testing.assert_allclose(placed, expected, rtol=1e-9, atol=1e-12)
    again = zero_shot_means(means[order], ids[order], hierarchy, unseen, **options)
    np.testing.assert_array_equal(placed, again)
    means_by_unseen = dict(zip(unseen.tolist(), placed, strict=True))
    for kind, k in itertools.product(("against", "expected", "as_one"), (1, 3)):
        options |= {"equal_means": kind, "k": (1, 3)}
        expected = hits_by_loops(unseen_rows, unseen_labels, means_by_unseen, k, kind)
        values = zero_shot_per_query(*data, **options)[f"top{k}"]
        np.testing.assert_allclose(values, expected, atol=1e-12)
        score = zero_shot_accuracy(*data, **options)[k]
        assert score == pytest.approx(np.mean(expected), abs=1e-12)
    assert score > 0


def test_siblings_share_one_mean_whatever_the_order_of_their_parents():
    hierarchy = {1: "a", 2: "b", 3: "c", 8: ("a", "b", "c"), 9: ("c", "b", "a")}
    known = np.array([[0.1], [0.2], [0.3]]), [1, 2, 3]  # whose sum depends on their order
    first, second = zero_shot_means(*known, hierarchy, [8, 9])
    assert first.tobytes() == second.tobytes()
    alone = zero_shot_accuracy(*known, hierarchy, np.array([[0.3]]), [8], k=1)
    assert alone == {1: 1.0}  # it competes with none
    data = (*known, hierarchy, np.array([[0.3], [0.3]]), [8, 9])
    expected = {"against": {1: 0.0, 2: 1.0}, "expected": {1: 0.5, 2: 1.0}}
    for kind, scores in (expected | {"as_one": {1: 1.0, 2: 1.0}}).items():
        assert zero_shot_accuracy(*data, k=(1, 2), equal_means=kind) == scores


def test_the_parent_alone_is_the_nearest_with_trained_classes():
    hierarchy = {1: "x", 2: "x", 3: "root", 9: "empty", "empty": "x", "x": "root"}
    means = np.array([[1.0], [3.0], [8.0]])
    assert zero_shot_means(means, [1, 2, 3], hierarchy, [9], ancestors="parent") == 2.0
    below_itself = {"wolf": "animal", 1: "animal", 2: 1, 9: 1}
    assert zero_shot_means(means[:2], [1, 2], below_itself, [9], ancestors="parent") == 2.0


def test_unit_means_of_unit_means():
    hierarchy = {1: "a", 2: "a", 9: "a", 8: "b", 3: "b"}
    rows = np.array([[2.0, 0.0], [0.0, 9.0], [1.0, 0.0]])
    # As they are (1, 4.5) and (1, 0); of unit means, made unit, at 45 and 0 degrees.
    unseen = np.tile([np.cos(0.41), np.sin(0.41)], (2, 1))
    data = rows, [1, 2, 3], hierarchy, unseen, [9, 8]
    assert zero_shot_per_query(*data, k=1)["top1"].tolist() == [0.0, 1.0]
    unit = zero_shot_per_query(*data, k=1, renormalize_means=True)
    assert unit["top1"].tolist() == [1.0, 0.0]


M, H = np.eye(2), {1: "a", 2: "b", 9: "a", 8: "c", "a": "r", "b": "r", "c": "s"}


def placing(hierarchy, ids=(1, 2), unseen=(9,), means=M, **options):
    return zero_shot_means(means, ids, hierarchy, unseen, **options)


def scoring(rows, **options):
    return zero_shot_accuracy(M, [1, 2], H, rows, [9], **{"k": 1, **options})


@pytest.mark.parametrize(
    ("function", "given", "options", "error", "message"),
    [
        (placing, H, {"unseen": [8]}, ValueError, r"an ancestor with training .*first=\[8\]"),
        (placing, H, {"means": M[:1], "ids": [2], "include_roots": False}, ValueError, "without=1"),
        (placing, H, {"unseen": [2]}, ValueError, r"classes must not be trained. .*shared=\[2\]"),
        (placing, H, {"ids": [1, 1]}, ValueError, "`ids` must have each class once"),
        (placing, H, {"ids": [1]}, ValueError, "`ids` must have one id per row of `means`"),
        (placing, H, {"ids": [1, 5]}, ValueError, r"a parent for every class. .*first=\[5\]"),
        (placing, H, {"ids": [1.0, 2]}, TypeError, "`ids` must be integers"),
        (placing, H, {"ancestors": "some"}, ValueError, "must be one of 'all', 'parent'"),
        (placing, H, {"weights": "x"}, ValueError, "must be one of 'equal', 'depth'"),
        (placing, H, {"include_roots": 1}, TypeError, "`include_roots` must be true or"),
        (placing, {1: 1}, {}, ValueError, r"must have no cycles. Received: cycle=\[1, 1\]"),
        (placing, {5: 1, 1: 2, 2: 3, 3: 1}, {}, ValueError, r"cycles. .* cycle=\[1, 2, 3, 1\]"),
        (placing, {"a": ("r", "b"), "b": ("r", "a")}, {}, ValueError, r"\['a', 'b', 'a'\]"),
        (placing, {1: None}, {}, ValueError, "must not have None as a parent. Received: node=1"),
        (placing, [(1, 2)], {}, TypeError, "`hierarchy` must map each class to its parent or"),
        (scoring, M[:1], {"k": 2}, ValueError, "exceed the number of means. .*k=2, means=1"),
        (scoring, M[:1], {"equal_means": "x"}, ValueError, "must be one of 'expected', 'against'"),
        (scoring, np.ones((1, 3)), {}, ValueError, "`embeddings` and `unseen_embeddings` must"),
        (scoring, M[:1], {"wieght": 1}, TypeError, r"got an unexpected .*'wieght'"),
    ],
)
def test_rejects_what_cannot_be_placed_or_scored(function, given, options, error, message):
    with pytest.raises(error, match=message):
        function(given, **options)


@pytest.mark.parametrize("unseen", [(7, 8, 9), (7, 8)])
def test_rows_of_related_classes_are_scored_among_all(unseen, rng):
    hierarchy = {1: "a", 2: "b", 7: "a", 8: "b", 9: "c"} | dict.fromkeys("abc", "root")
    labels = rng.choice(unseen, 30)
    known = rng.normal(size=(20, 3)), np.arange(20) % 2 + 1, hierarchy, rng.normal(size=(30, 3))
    results = zero_shot_scores(*known, labels[:, None], k=(1, 2), weights="depth")
    for kind, words in (("expected", "in random order"), ("as_one", "as one class")):
        options = {"k": (1, 2), "equal_means": kind, "weights": "depth"}
        for name, hits in zero_shot_per_query(*known, labels, **options).items():
            assert results["unseen"][words][name] == pytest.approx(hits.mean(), abs=1e-12)
            if 9 in unseen:
                related = results["unseen"][f"{words}, with kin"][name]
                assert related == pytest.approx(hits[labels != 9].mean(), abs=1e-12)
    assert results["scores"] == results["unseen"]["in random order"]
    assert len(results["unseen"]) == (6 if 9 in unseen else 3)
    assert results["classes"] == {"known": 2, "unseen": len(unseen), "unseen_with_kin": 2}
    words, table = results_text(results).split("\nOf ")[1].split("\n", 1)
    assert words.startswith(f"{len(unseen)} unseen classes 2 have related ones among 2 known")
    assert len({len(line) for line in table.splitlines()}) == 1  # columns of one width


def test_a_deep_hierarchy_needs_no_recursion():
    chain = {i: i + 1 for i in range(5000)} | {-1: 4999}
    assert zero_shot_means(M[:1], [0], chain, [-1]).tolist() == M[:1].tolist()


@pytest.mark.parametrize("share", [0.2, 0.5, 0.34, 0.9])
def test_holds_a_share_of_every_parent_out_and_keeps_one(share):
    hierarchy = {i: "ABC"[(i > 3) + (i > 9)] for i in range(2, 40)}  # 2, 6 and 30 classes
    held_out = every_nth_child(range(2, 40), hierarchy, share)
    assert held_out == sorted(held_out)
    for parent, count in (("A", 2), ("B", 6), ("C", 30)):
        children = [hierarchy[i] for i in held_out].count(parent)
        assert children == int(count * share + 1e-9) < count
    assert every_nth_child(range(12), dict.fromkeys(range(12), "x"), 0.2) == [4, 9]
    assert len(every_nth_child(range(50), dict.fromkeys(range(50), "x"), 0.58)) == 29
    with pytest.raises(ValueError, match=r"`share` must be > 0 and < 1. Received: share=1"):
        every_nth_child([1], {1: 2}, 1)


def test_reads_a_file_also_of_a_spreadsheet(tmp_path):
    path = tmp_path / "tree.csv"
    text = 'class,parent\npony, horse\n"cat, black",cat\n\npony,pet\nhorse,animal\n'
    for encoding in ("utf-8", "utf-8-sig"):
        path.write_text(text, encoding)
        assert read_hierarchy(path) == {
            "pony": ("horse", "pet"),
            "cat, black": ("cat",),
            "horse": ("animal",),
        }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"pony,horse\n", r"must begin with the line class,parent. Received: line=\['pony"),
        (b"", "must begin with the line class,parent. Received: line="),
        (b"class,parent\n", "must list classes and their parents. Received: lines=0"),
        (b"class,parent\na,b\nb,\n", r", line 3 must be .* Received: line=\['b', ''\]"),
        (b"class,parent\na,b\nb,a\n", ": `hierarchy` must have no cycles"),
        (b"\x89PNG", "must be a CSV file in UTF-8"),
    ],
)
def test_rejects_files_with_their_name_and_line(content, message, tmp_path):
    path = tmp_path / "tree.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"tree\.csv ?{message}"):
        read_hierarchy(path)


def test_names_of_classes_become_their_ids():
    hierarchy = {"dog": "animal", "poodle": ("dog", "pet"), "cat": "animal", "pet": "animal"}
    found = by_class_id(hierarchy, {2**40: "poodle", 3: "dog"})
    assert found == {3: ("animal",), 2**40: (3, "pet"), "cat": ("animal",), "pet": ("animal",)}
    with pytest.raises(ValueError, match=r"a parent for every class. .*first=\['fox'\]"):
        by_class_id(hierarchy, {1: "fox"})
    with pytest.raises(ValueError, match="classes must have different names"):
        by_class_id(hierarchy, {1: "cat", 2: "cat"})
