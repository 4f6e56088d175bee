import numpy as np
import pytest

from tfdml.evaluation import every_nth_child, read_hierarchy
from tfdml.evaluation.zero_shot import (
    ancestors_of,
    by_class_id,
    by_super_class,
    parents_of_nodes,
)


def test_ancestors_are_counted_by_the_fewest_steps():
    #  4 -> 2 -> 1 and 4 -> 3 -> 2 -> 1, which is no cycle
    parents = parents_of_nodes({4: (2, 3), 3: 2, 2: 1})
    assert parents == {4: (2, 3), 3: (2,), 2: (1,)}
    assert ancestors_of(4, parents) == {2: 1, 3: 1, 1: 2}
    assert ancestors_of(1, parents) == {}
    chain = parents_of_nodes({i: i + 1 for i in range(50_000)})  # needs no recursion
    assert ancestors_of(0, chain)[50_000] == 50_000


@pytest.mark.parametrize(
    ("hierarchy", "error", "message"),
    [
        ({1: 1}, ValueError, r"must have no cycles. Received: cycle=\[1, 1\]"),
        ({5: 1, 1: 2, 2: 3, 3: 1}, ValueError, r"no cycles. Received: cycle=\[1, 2, 3, 1\]"),
        ({"a": ("r", "b"), "b": ("r", "a")}, ValueError, r"no cycles. .*\['a', 'b', 'a'\]"),
        ({1: None}, ValueError, "must not have None as a parent. Received: node=1"),
        ([(1, 2)], TypeError, "`hierarchy` must map each class to its parent or a tuple"),
    ],
)
def test_rejects_what_is_no_hierarchy(hierarchy, error, message):
    with pytest.raises(error, match=message):
        parents_of_nodes(hierarchy)


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


def test_holding_out_rejects_shares_and_classes_that_cannot_be():
    with pytest.raises(ValueError, match=r"`share` must be > 0 and < 1. Received: share=1"):
        every_nth_child([1], {1: 2}, 1)
    with pytest.raises(ValueError, match=r"a parent for every class. .*without=1, first=\[3\]"):
        every_nth_child([1, 3], {1: 2}, 0.5)


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
        (b"", "must list classes and their parents. Received: lines=0"),
        (b"class,parent\n", "must list classes and their parents"),
        (b"class,parent\na,b,c\n", ", line 2 must be a class and its parent"),
        (b"class,parent\na,b\nb,\n", r", line 3 must be .* Received: line=\['b', ''\]"),
        (b"class,parent\na,b\nb,a\n", ": `hierarchy` must have no cycles"),
        (b"\x89PNG", "must be a text file"),
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


def test_super_classes_are_under_one_root():
    hierarchy = by_super_class(np.array([2**40, 1, 2**40]), np.array([5, -1, 5]))
    assert ancestors_of(2**40, hierarchy) == {"super-class 5": 1, "all": 2}
    assert ancestors_of(1, hierarchy) == {"super-class -1": 1, "all": 2}
