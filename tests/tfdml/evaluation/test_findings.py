import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from tfdml.evaluation import audit, rank


@pytest.fixture(scope="module")
def planted():
    """Rows of 30 classes around their means, of 40 rows or 120, with known faults."""
    rng = np.random.default_rng(0)
    means = 3 * rng.normal(size=(30, 24))
    labels = np.concatenate([np.repeat(np.arange(30), 40), np.full(80, 20)])
    rows = means[labels] + rng.normal(size=(1280, 24))
    wrong = rng.permutation(np.flatnonzero(labels != 10))[:24]
    labels[wrong] = (labels[wrong] + rng.integers(1, 30, 24)) % 30
    copied = rng.permutation(np.setdiff1d(np.arange(1280), wrong))[:30]
    rows = np.concatenate([rows, rows[copied] + 0.05 * rng.normal(size=(30, 24))])
    labels = np.concatenate([labels, labels[copied]])
    rows[7] += 40.0  # of no class
    labels[labels == 11] = 10  # two classes in one
    half = np.flatnonzero(labels == 20)[::2]
    labels[half] = 99  # one class in two
    rows = np.concatenate([rows, means[5:6]])
    labels = np.append(labels, 77)  # a class of one row
    groups = np.zeros(len(labels), int)
    groups[1280:1295] = 1
    return rows.astype(np.float32), labels, groups, wrong, copied


@pytest.fixture(scope="module")
def found(planted):
    rows, labels, groups, *_ = planted
    return audit(rows, labels, groups=groups)


def of(found, kind):
    return [each for each in found if each.finding == kind]


def test_duplicates_and_leaks(planted, found):
    copied = planted[-1].tolist()
    leaks = {(each.row, each.other) for each in of(found, "leak") if each.score > 0.5}
    twice = {(each.row, each.other) for each in of(found, "duplicate") if each.score > 0.5}
    # Of a leak the row of the lower group goes, of a duplicate the later one.
    assert leaks == {(row, 1280 + i) for i, row in enumerate(copied[:15])}
    assert twice == {(1295 + i, row) for i, row in enumerate(copied[15:])}


def test_a_row_beside_many_equal_ones_is_no_copy_of_them():
    rows = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)
    rows[:12] = 0
    rows[12] = [1, *[0] * 7]
    pairs = {(each.row, each.other) for each in audit(rows, np.arange(60) // 3)}
    twice = {(row, other) for row, other in pairs if other >= 0}
    assert {*range(1, 12)} <= {row for row, _ in twice}
    assert 12 not in {row for pair in twice for row in pair}


def test_wrong_labels(planted, found):
    _, labels, _, wrong, _ = planted
    scores = np.zeros(len(labels))
    for each in of(found, "label"):
        scores[each.row] = each.score
        assert labels[each.other] == each.label != labels[each.row]
    assert average_precision_score(np.isin(np.arange(len(labels)), wrong), scores) > 0.85


def test_outliers_and_classes(planted, found):
    labels = planted[1]
    assert [each.row for each in of(found, "outlier")] == [7]
    merged = [{int(labels[each.row]), int(labels[each.other])} for each in of(found, "merge")]
    assert merged == [{20, 99}]
    assert of(found, "split")[0].label == 10
    assert [(each.label, each.row) for each in of(found, "size")] == [(77, len(labels) - 1)]


def test_the_surest_come_first_and_scores_are_shares(found):
    kinds = [each.finding for each in found]
    assert kinds == sorted(kinds, key=list(dict.fromkeys(kinds)).index)
    for kind in set(kinds):
        scores = [each.score for each in of(found, kind)]
        assert scores == sorted(scores, reverse=True)
        assert 0 <= min(scores) <= max(scores) <= 1


def test_ranking_scale_and_order_of_ids_do_not_matter(planted, found):
    rows, labels, groups, *_ = planted
    ranking = rank(rows, labels, nearest=10, depth=0)
    again = audit(1e-20 * rows.astype(np.float64), labels, groups=groups, ranking=ranking)
    assert [each[:3] for each in again] == [each[:3] for each in found]


@pytest.mark.parametrize("labels", [[0, 0, 0], [0, 1, 2], [0, 0, 1]])
@pytest.mark.parametrize("rows", [np.zeros((3, 2)), np.eye(3)])
def test_few_and_equal_rows(rows, labels):
    found = audit(rows, np.array(labels))
    assert len(of(found, "duplicate")) == (0 if rows.any() else 3)


def test_what_cannot_be_audited():
    with pytest.raises(ValueError, match=r"3 rows or more.*rows=2"):
        audit(np.eye(2), np.array([0, 1]))
    with pytest.raises(ValueError, match=r"same batch size.*groups"):
        audit(np.eye(3), np.array([0, 1, 1]), groups=np.array([0]))
