import inspect
import itertools

import numpy as np
import pytest

from tfdml.evaluation import (
    class_means,
    have_relatives,
    zero_shot_accuracy,
    zero_shot_means,
    zero_shot_per_query,
)
from tfdml.evaluation.report.tables import results_text
from tfdml.evaluation.zero_shot import zero_shot_scores

BIG = 2**40


def random_hierarchy(rng, classes):
    """Classes of one or two of 6 families, which have one or two of 3 orders, under one root."""
    hierarchy = {f"family {i}": (f"order {i % 3}",) for i in range(6)}
    hierarchy["family 5"] = ("order 2", "order 0")
    hierarchy |= {f"order {i}": "root" for i in range(3)}
    for node in classes:
        families = rng.choice(6, size=rng.integers(1, 3), replace=False)
        hierarchy[node] = tuple(f"family {i}" for i in families)
    return hierarchy


def steps_up(hierarchy, node):
    """{ancestor: fewest steps}, by walking every way up."""
    found = {}

    def walk(child, steps):
        above = hierarchy.get(child, ())
        for parent in above if isinstance(above, tuple) else (above,):
            found[parent] = min(found.get(parent, 99), steps)
            walk(parent, steps + 1)

    walk(node, 1)
    return found


def means_by_loops(means, hierarchy, unseen, ancestors, weights, include_roots):
    placed = []
    for z in unseen:
        total, weight_of_all, of_nodes = 0.0, 0.0, {}
        steps = steps_up(hierarchy, z)
        for a in steps:
            below = [mean for c, mean in means.items() if a in steps_up(hierarchy, c)]
            if below and (include_roots or a in hierarchy):
                of_nodes[a] = sum(below) / len(below)
        nearest = min(steps[a] for a in of_nodes)
        for a, mean in of_nodes.items():
            if ancestors == "all" or steps[a] == nearest:
                weight = 1 / steps[a] if weights == "depth" else 1
                total, weight_of_all = total + weight * mean, weight_of_all + weight
        placed.append(total / weight_of_all)
    return np.array(placed)


OPTIONS = [
    dict(zip(("ancestors", "weights", "include_roots"), values, strict=True))
    for values in itertools.product(("all", "parent"), ("equal", "depth"), (True, False))
]


@pytest.fixture
def data(rng):
    """Rows of 12 trained and 9 unseen classes, and a hierarchy of all."""
    trained, unseen = [BIG + i for i in range(12)], [2**53 + i for i in range(9)]
    hierarchy = random_hierarchy(rng, [*trained, *unseen])
    labels, unseen_labels = rng.permutation(trained * 4), rng.permutation(unseen * 5)
    rows, unseen_rows = rng.normal(size=(48, 4)), rng.normal(size=(45, 4))
    return rows, labels, hierarchy, unseen_rows, unseen_labels


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_places_classes_as_loops_do(data, options, rng):
    rows, labels, hierarchy, _, unseen_labels = data
    ids, means = class_means(rows, labels)
    unseen = rng.permutation(np.unique(unseen_labels))
    found = zero_shot_means(means, ids, hierarchy, unseen, **options)
    of_ids = dict(zip(ids.tolist(), means, strict=True))
    expected = means_by_loops(of_ids, hierarchy, unseen.tolist(), **options)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    order = rng.permutation(len(ids))
    again = zero_shot_means(means[order], ids[order], hierarchy, unseen, **options)
    np.testing.assert_array_equal(found, again)


@pytest.mark.parametrize("equal_means", ["against", "expected", "as_one"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_scores_as_loops_do(data, options, equal_means):
    rows, labels, hierarchy, unseen_rows, unseen_labels = data
    ids, means = class_means(rows, labels)
    unseen = np.unique(unseen_labels)
    placed = zero_shot_means(means, ids, hierarchy, unseen, **options)
    values = zero_shot_per_query(*data, k=(1, 3), equal_means=equal_means, **options)
    scores = zero_shot_accuracy(*data, k=(1, 3), equal_means=equal_means, **options)
    for k in (1, 3):
        expected = []
        for row, label in zip(unseen_rows, unseen_labels, strict=True):
            own = placed[unseen == label][0]
            others = [mean for mean, z in zip(placed, unseen, strict=True) if z != label]
            equal = sum((mean == own).all() for mean in others)
            nearer = [
                mean
                for mean in others
                if (mean != own).any() and np.sum((row - mean) ** 2) <= np.sum((row - own) ** 2)
            ]
            if equal_means == "against":
                expected.append(float(len(nearer) + equal < k))
            elif equal_means == "as_one":
                expected.append(float(len({mean.tobytes() for mean in nearer}) < k))
            else:  # every order of the equal ones is as likely
                places = range(len(nearer), len(nearer) + equal + 1)
                expected.append(np.mean([place < k for place in places]))
        np.testing.assert_allclose(values[f"top{k}"], expected, atol=1e-12)
        assert scores[k] == pytest.approx(np.mean(expected), abs=1e-12)
    assert scores[3] > 0


def test_siblings_share_one_mean_whatever_the_order_of_their_parents():
    hierarchy = {1: "a", 2: "b", 3: "c", 8: ("a", "b", "c"), 9: ("c", "b", "a")}
    means = np.array([[0.1], [0.2], [0.7]])
    first, second = zero_shot_means(means, [1, 2, 3], hierarchy, [8, 9])
    assert first.tobytes() == second.tobytes()
    data = (means, [1, 2, 3], hierarchy, np.array([[0.3]]), [8])
    assert zero_shot_accuracy(*data, k=1) == {1: 1.0}  # alone it competes with none
    data = (means, [1, 2, 3], hierarchy, np.array([[0.3], [0.3]]), [8, 9])
    of_kinds = [
        zero_shot_accuracy(*data, k=(1, 2), equal_means=kind)
        for kind in ("against", "expected", "as_one")
    ]
    assert of_kinds == [{1: 0.0, 2: 1.0}, {1: 0.5, 2: 1.0}, {1: 1.0, 2: 1.0}]


def test_a_trained_class_is_at_or_below_itself():
    hierarchy = {"wolf": "animal", 1: "animal", 2: 1, 9: 1}
    means = np.array([[1.0], [3.0]])
    assert zero_shot_means(means, [1, 2], hierarchy, [9], ancestors="parent").tolist() == [[2.0]]


def test_the_parent_alone_is_the_nearest_with_trained_classes():
    hierarchy = {1: "x", 9: "empty", "empty": "x", "x": "root", 2: "root"}
    placed = zero_shot_means(np.array([[1.0], [5.0]]), [1, 2], hierarchy, [9], ancestors="parent")
    assert placed.tolist() == [[1.0]]


def test_finds_classes_with_relatives_other_than_by_the_root():
    hierarchy = {1: "x", 2: "y", 8: "x", 9: "z", 7: "root"} | dict.fromkeys("xyz", "root")
    assert have_relatives([1, 2], hierarchy, [9, 8, 7]).tolist() == [False, True, False]


def test_unit_means_of_unit_means(rng):
    hierarchy = {1: "a", 2: "a", 9: "a", 8: "b", 3: "b"}
    rows = np.array([[2.0, 0.0], [0.0, 9.0], [1.0, 0.0]])
    # As they are (1, 4.5) and (1, 0); of unit means, made unit, at 45 and 0 degrees.
    unseen = np.array([[np.cos(0.5), np.sin(0.5)]])
    data = (rows, [1, 2, 3], hierarchy, np.tile(unseen, (2, 1)), [9, 8])
    assert zero_shot_per_query(*data, k=1)["top1"].tolist() == [0.0, 1.0]
    unit = zero_shot_per_query(*data, k=1, renormalize_means=True)
    assert unit["top1"].tolist() == [1.0, 0.0]


M, H = np.eye(2), {1: "a", 2: "b", 9: "a", 8: "c", "a": "r", "b": "r", "c": "s"}


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((M, [1, 2], H, [8]), {}, ValueError, r"an ancestor with training classes .*first=\[8\]"),
        ((M[:1], [9], {9: "r", 8: "r"}, [8]), {"include_roots": False}, ValueError, "without=1"),
        ((M, [1, 2], H, [2]), {}, ValueError, r"classes must not be trained. .*shared=\[2\]"),
        ((M, [1, 1], H, [9]), {}, ValueError, "`ids` must have each class once"),
        ((M, [1], H, [9]), {}, ValueError, "`ids` must have one id per row of `means`"),
        ((M, [1, 5], H, [9]), {}, ValueError, r"a parent for every training class.*first=\[5\]"),
        ((M, [1, 2], H, [6]), {}, ValueError, r"a parent for every unseen class.*first=\[6\]"),
        ((M, [1, 2], {**H, "r": "a"}, [9]), {}, ValueError, "must have no cycles"),
        ((M, [1.0, 2], H, [9]), {}, TypeError, "`ids` must be integers"),
        ((M, [1, 2], H, [9]), {"ancestors": "some"}, ValueError, "must be one of 'all', 'parent'"),
        ((M, [1, 2], H, [9]), {"weights": "x"}, ValueError, "must be one of 'equal', 'depth'"),
        ((M, [1, 2], H, [9]), {"include_roots": 1}, TypeError, "`include_roots` must be a bool"),
    ],
)
def test_rejects_what_cannot_be_placed(arguments, options, error, message):
    with pytest.raises(error, match=message):
        zero_shot_means(*arguments, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 2}, "`k` must not exceed the number of means. Received: k=2, means=1"),
        ({"k": 1, "equal_means": "x"}, "`equal_means` must be one of 'against', 'expected'"),
    ],
)
def test_rejects_wrong_options_of_the_score(options, message):
    with pytest.raises(ValueError, match=message):
        zero_shot_accuracy(M, [1, 2], H, M[:1], [9], **options)
    with pytest.raises(ValueError, match="`embeddings` and `unseen_embeddings` must have the same"):
        zero_shot_accuracy(M, [1, 2], H, np.ones((1, 3)), [9], k=1)


HIERARCHY = {1: "a", 2: "b", 7: "a", 8: "b", 9: "c"} | dict.fromkeys("abc", "root")


@pytest.mark.parametrize("unseen", [(7, 8, 9), (7, 8)])
def test_rows_of_related_classes_are_scored_among_all(unseen, rng):
    rows, labels = rng.normal(size=(20, 3)), np.arange(20) % 2 + 1
    unseen_labels = rng.choice(unseen, 30)
    data = (rows, labels, HIERARCHY, rng.normal(size=(30, 3)), unseen_labels)
    column = (*data[:-1], unseen_labels[:, None])
    results = zero_shot_scores(*column, k=(1, 2), weights="depth")
    has_related = unseen_labels != 9
    for kind, words in (("expected", "in random order"), ("as_one", "as one class")):
        options = {"k": (1, 2), "equal_means": kind, "weights": "depth"}
        found = {k: results["unseen"][words][f"top{k}"] for k in (1, 2)}
        assert found == pytest.approx(zero_shot_accuracy(*data, **options), abs=1e-12)
        for name, hits in zero_shot_per_query(*data, **options).items():
            if 9 in unseen:
                of_related = results["unseen"][f"{words}, with kin"][name]
                assert of_related == pytest.approx(hits[has_related].mean(), abs=1e-12)
    assert len(results["unseen"]) == (6 if 9 in unseen else 3)
    assert results["classes"] == {"known": 2, "unseen": len(unseen), "unseen_with_kin": 2}
    words, table = results_text(results).split("\nOf ")[1].split("\n", 1)
    assert words.startswith(f"{len(unseen)} unseen classes 2 have related ones among 2 known")
    columns = {len(line) for line in table.splitlines()}
    assert len(columns) == 1  # of one width


def test_shows_all_options_and_names_an_unknown_one():
    signature = inspect.signature(zero_shot_accuracy)
    assert signature == inspect.signature(zero_shot_per_query)
    assert {"k", "equal_means", "ancestors", "weights", "include_roots"} <= set(
        signature.parameters
    )
    data = (np.eye(2), [1, 2], {1: "a", 2: "a", 3: "a"}, np.eye(2), [3, 3])
    for function in (zero_shot_accuracy, zero_shot_per_query):
        with pytest.raises(
            TypeError, match=rf"{function.__name__}\(\) got an unexpected .*'wieght'"
        ):
            function(*data, wieght="equal")
