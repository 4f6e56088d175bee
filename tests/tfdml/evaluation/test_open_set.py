import json
import math

import numpy as np
import pytest
from sklearn import metrics
from sklearn.covariance import ledoit_wolf

from tfdml import evaluation
from tfdml.evaluation import open_set
from tfdml.evaluation.open_set import METHODS


@pytest.fixture
def drawn(rng):
    """Queries, and a gallery of classes of 6, 1 and 3 rows with ids of any size."""
    labels = np.repeat([7, -2, 2**40], [6, 1, 3])
    return rng.normal(size=(9, 4)), rng.normal(size=(10, 4)), rng.permutation(labels)


def classes_of(rows, labels):
    return {label: rows[labels == label] for label in sorted(set(labels.tolist()))}


def by_loops(row, rows, labels, method):
    """The class and the score of a row, by the words of the docstring."""
    classes = classes_of(rows, labels)
    if method == "nearest":
        distances = {c: min(math.dist(row, other) for other in of) for c, of in classes.items()}
        best = min(distances, key=distances.__getitem__)
        return best, -distances[best]
    means = {label: of.mean(axis=0) for label, of in classes.items()}
    distances = {label: math.dist(row, mean) for label, mean in means.items()}
    if method == "mahalanobis":
        around = np.concatenate([of - means[label] for label, of in classes.items()])
        inverse = np.linalg.inv(ledoit_wolf(around, assume_centered=True)[0])
        gaps = {label: row - mean for label, mean in means.items()}
        distances = {label: math.sqrt(gap @ inverse @ gap) for label, gap in gaps.items()}
    best, second, *_ = sorted(distances, key=distances.__getitem__)
    if method == "ratio":
        return best, -distances[best] / distances[second]
    if method == "per_class":
        left_out = {}
        for label, of in classes.items():
            others = [np.delete(of, i, axis=0) for i in range(len(of) * (len(of) > 1))]
            pairs = zip(of, others, strict=False)
            left_out[label] = [math.dist(one, rest.mean(axis=0)) for one, rest in pairs]
        average = np.mean(np.concatenate(list(left_out.values())))
        return best, -distances[best] / np.mean([*left_out[best], average])
    return best, -distances[best]


@pytest.mark.parametrize("method", METHODS)
def test_predicts_as_loops_do(method, drawn):
    queries, rows, labels = drawn
    predicted, scores = evaluation.open_set_predictions(queries, rows, labels, method=method)
    expected = [by_loops(query, rows, labels, method) for query in queries]
    assert predicted.tolist() == [label for label, _ in expected]
    np.testing.assert_allclose(scores, [score for _, score in expected], rtol=1e-6)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rows", [np.eye(3), np.zeros((3, 3)), np.eye(3)[[0, 0, 0]]])
def test_classes_of_one_row_and_equal_rows_have_finite_scores(method, rows):
    queries = np.concatenate([rows, rows + 0.1])
    predicted, scores = evaluation.open_set_predictions(queries, rows, np.arange(3), method=method)
    assert np.isfinite(scores).all()
    assert set(predicted) <= {0, 1, 2}
    if len(np.unique(rows, axis=0)) == 3:
        assert predicted.tolist() == [0, 1, 2] * 2


def decisions(rng, ties):
    labels = rng.integers(-1, 3, 200)
    scores = rng.normal(size=200) + (labels >= 0)
    predicted = np.where(rng.random(200) < 0.7, np.maximum(labels, 0), rng.integers(0, 3, 200))
    return predicted, np.round(scores, 1) if ties else scores, labels


def openood(scores, positive):
    """AUROC and FPR at 95 % TPR as OpenOOD has them, which takes unknown rows as the positives."""
    accepted, found, _ = metrics.roc_curve(positive, scores)
    return metrics.auc(accepted, found), accepted[np.argmax(found >= 0.95)]


def curve_of_dhamija(predicted, scores, labels):
    """The area under correct classification rates over false positive rates of all thresholds."""
    known, points = labels >= 0, [(0.0, 0.0)]
    for threshold in sorted(set(scores), reverse=True):
        accepted = scores >= threshold
        right = np.sum(accepted & known & (predicted == labels)) / known.sum()
        points.append((np.sum(accepted & ~known) / np.sum(~known), right))
    return np.trapezoid(*np.transpose(points)[::-1])


@pytest.mark.parametrize("alarms", [0.0, 0.01, 0.1, 0.5, 0.99])
@pytest.mark.parametrize("ties", [False, True])
def test_scores_are_those_of_reference_formulas(ties, alarms, rng):
    predicted, scores, labels = decisions(rng, ties)
    known = labels >= 0
    found = evaluation.open_set_scores(predicted, scores, labels, false_alarm_rate=alarms)
    area, rate = openood(scores, known)
    assert found["auroc"] == pytest.approx(area)
    assert found["auroc"] == pytest.approx(openood(-scores, ~known)[0])
    assert found["fpr@95"] == rate
    assert found["oscr"] == pytest.approx(curve_of_dhamija(predicted, scores, labels))
    right = known & (predicted == labels)
    assert found["accuracy"] == right.sum() / known.sum()
    rates = [
        np.sum(right & (scores > threshold)) / known.sum()
        for threshold in scores
        if np.mean(scores[~known] > threshold) <= alarms
    ]
    assert found["dir"] == max(rates)
    assert all(type(value) is float for value in found.values())
    threshold = evaluation.open_set_threshold(scores, labels, false_alarm_rate=alarms)
    assert found["dir"] == np.sum(right & (scores > threshold)) / known.sum()
    nobody = evaluation.open_set_scores(np.full(200, 9), scores, labels)
    assert (nobody["oscr"], nobody["dir"], nobody["accuracy"]) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("number", [1, 2])
def test_every_part_has_known_and_unknown_classes_in_both_roles(number, rng):
    labels = np.repeat(np.arange(15), [5] * 9 + [1] * 6)
    parts = list(open_set._parts(rng.normal(size=(51, 3)), labels, rng, number))
    assert sorted(label for part in parts for label in set(part.classes)) == list(range(15))
    for part in parts:
        assert set(part.found) == set(METHODS)
        known = part.truth >= 0
        several = set(part.classes[known])
        assert several == {label for label in part.classes if label < 9}
        assert len(several) in (9 // number, -(-9 // number))
        for label in several:  # once all, and four times those that are not in the gallery
            assert [np.sum(part.classes[which] == label) for which in (~known, known)] == [5, 12]
        for predicted, _ in part.found.values():
            assert set(predicted) <= several


def test_separate_classes_are_told_apart_and_equal_ones_not(rng):
    labels = np.repeat(np.arange(16), 6)
    centres, noise = 9 * rng.normal(size=(16, 8))[labels], rng.normal(size=(96, 8))
    good = evaluation.open_set_evaluation(centres + noise, labels, draws=2)
    assert min(good["scores"][name] for name in ("auroc", "oscr", "accuracy")) > 0.95
    assert json.loads(json.dumps(good))["scores"] == good["scores"]
    assert {*good["methods"]} == {*METHODS}
    assert sum(of["chosen"] for of in good["methods"].values()) == pytest.approx(1)
    for name, (low, high) in good["intervals"].items():
        assert 0 <= low <= good["scores"][name] <= high <= 1
    assert good["reliability"]["ece"] <= good["scores"]["ece"] + 1e-9
    assert sum(good["reliability"]["rows"]) == 2 * 8 * (6 + 4 * 3)
    bad, again = (evaluation.open_set_evaluation(noise, labels, draws=1, seed=5) for _ in range(2))
    assert abs(bad["scores"]["auroc"] - 0.5) < 0.1
    assert bad["intervals"] == {}
    assert bad == again


def test_one_half_chooses_and_the_other_is_scored(rng):
    labels = np.repeat(np.arange(20), 8)
    rows = 1.5 * rng.normal(size=(20, 4))[labels] + rng.normal(size=(160, 4))
    found = evaluation.open_set_evaluation(rows, labels, draws=1, false_alarm_rate=0.1)
    first, second = open_set._parts(rows, labels, np.random.default_rng(0))
    hits = {
        method: evaluation.open_set_scores(*of, first.truth, false_alarm_rate=0.1)["dir"]
        for method, of in first.found.items()
    }
    best = max(hits, key=hits.__getitem__)
    assert {of["chosen"] for method, of in found["methods"].items() if method != best} == {0.0}
    for rule, method in (("chosen", best), ("naive", "nearest")):
        unknown = first.found[method][1][first.truth < 0]
        limit = min(score for score in unknown if np.mean(unknown > score) <= 0.1)
        predicted, scores = second.found[method]
        known, accepted = second.truth >= 0, scores > limit
        expected = {
            "false_alarm_rate": accepted[~known].mean(),
            "dir": (accepted & (predicted == second.truth))[known].mean(),
        }
        assert found["rules"][rule] == pytest.approx(expected)
    predicted, scores = first.found[best]
    _, fitted = evaluation.calibrate_probability(scores, predicted == first.truth, first.classes)
    predicted, scores = second.found[best]
    expected = evaluation.reliability(fitted(scores), predicted == second.truth)
    assert found["reliability"] == expected
    assert found["scores"]["ece"] == expected["ece"]


X, Y, TRUTH = np.eye(16) + 1, np.arange(16) // 2, np.array([0, 1, -1])
DECIDED = {"predicted": TRUTH, "scores": np.arange(3.0), "labels": TRUTH}


@pytest.mark.parametrize(
    ("function", "changes", "error", "message"),
    [
        ("evaluation", {"labels": np.arange(16)}, ValueError, "8 classes or more .*classes=0"),
        ("evaluation", {"labels": Y % 7}, ValueError, "must have 2 images or more.*classes=7"),
        ("evaluation", {"draws": 0}, ValueError, "`draws` must be an integer >= 1"),
        ("evaluation", {"seed": -1}, ValueError, "`seed` must be an integer >= 0"),
        ("evaluation", {"false_alarm_rate": 1.0}, ValueError, "`false_alarm_rate` must be >= 0"),
        ("evaluation", {"embeddings": X * np.inf}, ValueError, "`embeddings` must be finite"),
        ("predictions", {"method": "median"}, ValueError, "`method` must be one of 'nearest'"),
        ("predictions", {"gallery_labels": Y * 0}, ValueError, "2 classes or more.*classes=1"),
        ("predictions", {"embeddings": X[:, 1:]}, ValueError, "must have the same dim"),
        ("scores", {"labels": TRUTH + 1}, ValueError, "-1. Received: known=3, unknown=0"),
        ("scores", {"labels": -np.ones(3, int)}, ValueError, "known=0, unknown=3"),
        ("scores", {"scores": np.arange(4.0)}, ValueError, "must have the same batch size"),
        ("scores", {"scores": np.array([0, 1, np.nan])}, ValueError, "`scores` must be finite"),
        ("scores", {"predicted": X[0, :3]}, TypeError, "`predicted` must be integers"),
    ],
)
def test_rejects_wrong_input(function, changes, error, message):
    gallery = {"embeddings": X, "gallery_embeddings": X, "gallery_labels": Y}
    data = {"evaluation": {"embeddings": X, "labels": Y}, "predictions": gallery, "scores": DECIDED}
    with pytest.raises(error, match=message):
        getattr(evaluation, f"open_set_{function}")(**{**data[function], **changes})


def test_a_decision_is_chosen_by_classes_left_out_and_knows_all(rng):
    labels = np.repeat(np.arange(12), 8) - 3
    rows = 2 * rng.normal(size=(12, 4))[labels] + rng.normal(size=(96, 4))
    names = [f"class {row}" for row in range(12)]
    decision = evaluation.open_set_decision(rows, labels, names, false_alarm_rate=0.1)
    expected = evaluation.open_set_predictions(rows, rows, labels, method=decision.rule.method)
    found = decision(rows)
    np.testing.assert_array_equal(found["class_id"] - 3, expected[0])
    np.testing.assert_allclose(found["score"], expected[1])
    np.testing.assert_array_equal(found["known"], found["score"] > decision.threshold)
    assert ((found["probability"] > 0) & (found["probability"] < 1)).all()
    assert decision.facts["dir"] > 0.2
    far = decision(rows + 99)
    assert not far["known"].any()
    with pytest.raises(ValueError, match=r"`names` must have one per class\. Received: names=2"):
        evaluation.open_set_decision(rows, labels, ["a", "b"])
