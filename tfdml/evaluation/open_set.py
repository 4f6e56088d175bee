"""Whether a row is of a known class, and of which: predictions, scores and probabilities."""

from typing import Any, NamedTuple

import numpy as np
import scipy.stats
from sklearn.metrics import roc_auc_score, roc_curve

from tfdml.checks import check, check_one_of, check_share
from tfdml.evaluation import inputs
from tfdml.evaluation.calibration import (
    CALIBRATIONS,
    Isotonic,
    Platt,
    calibrate_probability,
    reliability,
)
from tfdml.evaluation.nearest_mean import class_means
from tfdml.evaluation.postprocessing import within_class_whitening
from tfdml.evaluation.random_draws import drawn_rows
from tfdml.evaluation.ranking import rank

METHODS = ("nearest", "mean", "ratio", "mahalanobis", "per_class")
_UNKNOWN = -1
_FEWEST_CLASSES = 8  # four in each half, of which three are known
_ROUNDS = 5


def open_set_predictions(embeddings, gallery_embeddings, gallery_labels, *, method="nearest"):
    """Predicts the class of each row, and scores how surely it is of a known class at all.

    With D the Euclidean distance from row x to a gallery row or the mean of a class, scores are

        nearest      -D(x, nearest row)
        mean         -D(x, nearest mean)
        ratio        -D(x, nearest mean) / D(x, second nearest mean)
        mahalanobis  as mean, where the covariance of rows around the means of their classes, one
                     for all classes and shrunk as Ledoit and Wolf do, is made the identity
        per_class    -D(x, nearest mean) / the mean distance of a row of that class from the mean of
                     its others, where each class has one row more, at the average distance

    Args:
        embeddings: (n, dim) floats, finite.
        gallery_embeddings: (m, dim) floats, finite, rows of the known classes.
        gallery_labels: (m,) or (m, 1) integers of any size, of two classes or more.
        method: One of those above.

    Returns:
        (n,) class ids, in the dtype of the labels, and (n,) float64 scores <= 0.

    Raises:
        TypeError, ValueError: As for `class_means`, or if the method is unknown.

    Source:
        Lee, Lee, Lee, Shin. A simple unified framework for detecting out-of-distribution samples.
        NeurIPS 2018 (mahalanobis); Lowe. Distinctive image features. IJCV 2004 (ratio).
        Differs: Lee et al. do not shrink the covariance, Lowe takes the ratio of nearest rows.
    """
    rows = inputs.finite_rows(embeddings)
    rule = OpenSetRule.fitted(gallery_embeddings, gallery_labels, method)
    inputs.check_alike("dim", embeddings=rows, gallery_embeddings=rule.rows)
    return rule(rows)


class OpenSetRule(NamedTuple):
    """What `open_set_predictions` learned of a gallery, a function of (n, dim) embeddings."""

    method: str
    rows: np.ndarray  # (m, dim), those of the gallery, or means of classes, ...
    ids: np.ndarray  # (m,) ... their class ids, and ...
    scales: np.ndarray  # (m,) ... what distances to them are divided by
    whitening: np.ndarray | None  # (dim, dim), what embeddings and rows are multiplied by

    @classmethod
    def fitted(cls, gallery_embeddings, gallery_labels, method):
        check_one_of(METHODS, method=method)
        given = gallery_embeddings, gallery_labels
        gallery, labels = inputs.embeddings_and_labels(*given, "gallery_")
        ids, classes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        expectation = "`gallery_labels` must be of 2 classes or more"
        check(len(ids) > 1, expectation, classes=len(ids))
        if method == "nearest":
            return cls(method, gallery, labels, np.ones(len(labels)), None)
        _, means = class_means(gallery, labels)
        residuals, scales, whitening = gallery - means[classes], np.ones(len(ids)), None
        if method == "mahalanobis":
            whitening = within_class_whitening(residuals)
        if method == "per_class":
            corrections = sizes / np.maximum(sizes - 1, 1)
            left_out = np.linalg.norm(residuals, axis=1) * corrections[classes]
            several = np.where(sizes > 1, sizes, 0)
            average = left_out.sum() / max(several.sum(), 1) or 1.0
            scales = (np.bincount(classes, left_out) + average) / (several + 1)
        return cls(method, means, ids, scales, whitening)

    def __call__(self, embeddings):
        rows, others = embeddings, self.rows
        if self.whitening is not None:
            rows, others = rows @ self.whitening, others @ self.whitening
        asked = np.full(len(rows), self.ids[0])  # `rank` finds the nearest whatever is asked for
        found = rank(rows, asked, others, self.ids, nearest=2, depth=0)
        place, (distances, second) = found.nearest[:, 0], found.distances.T
        if self.method == "ratio":
            distances = np.where(second > 0, distances / np.where(second > 0, second, 1.0), 1.0)
        return self.ids[place], -distances / self.scales[place]


def open_set_scores(predicted, scores, labels, *, false_alarm_rate=0.01):
    """Scores of telling known classes from each other and from unknown ones, by a threshold.

    With s the scores, K the rows of known and U those of unknown classes:

        auroc    = P(s[K] > s[U]) + P(s[K] = s[U]) / 2
        fpr@95   = share of U with s >= t, t the largest number that 95 % of K reach
        oscr     = P(K right, s[K] > s[U]) + P(K right, s[K] = s[U]) / 2, the area under the
                   curve of the correct classification rate over the false positive rate
        dir      = share of K that are right with s > t, t that of `open_set_threshold`: the
                   detection and identification rate, at rank 1, for a false-alarm rate
        accuracy = share of K that are right

    Args:
        predicted: (n,) integers, class ids.
        scores: (n,) floats, finite, larger if a row is more surely of a known class.
        labels: (n,) integers, the true class ids, -1 for rows of unknown classes.
        false_alarm_rate: Share of the unknown rows that may count as known; >= 0 and < 1.

    Returns:
        {"auroc", "fpr@95", "oscr", "dir", "accuracy"}, Python floats in [0, 1].

    Raises:
        TypeError, ValueError: If an argument is not such, or not both kinds of rows are there.

    Source:
        Liang, Li, Srikant. Enhancing the reliability of out-of-distribution image detection. ICLR
        2018 (fpr@95); Dhamija, Gunther, Boult. Reducing network agnostophobia. NeurIPS 2018 (oscr);
        Phillips, Grother, Micheals. Evaluation methods in face recognition. 2011 (dir).
        Differs: fpr@95 of OpenOOD takes unknown rows as the positives.
    """
    threshold = open_set_threshold(scores, labels, false_alarm_rate=false_alarm_rate)
    scores, right, known = _checked(predicted, scores, labels)
    accepted, found, _ = roc_curve(known, scores, drop_intermediate=False)
    accuracy, kept = float(np.mean(right[known])), right | ~known
    return {
        "auroc": float(roc_auc_score(known, scores)),
        "fpr@95": float(accepted[np.argmax(found >= 0.95)]),
        "oscr": accuracy and accuracy * float(roc_auc_score(right[kept], scores[kept])),
        "dir": float(np.mean((right & (scores > threshold))[known])),
        "accuracy": accuracy,
    }


def open_set_threshold(scores, labels, *, false_alarm_rate=0.01):
    """The smallest threshold that few enough scores of unknown rows exceed, a Python float.

    Of n unknown rows, the (floor(false_alarm_rate * n) + 1)-th largest score. Rows with larger
    scores count as known. Arguments and errors are those of `open_set_scores`.
    """
    check_share(false_alarm_rate=false_alarm_rate)
    scores, _, known = _checked(labels, scores, labels)
    unknown = np.sort(scores[~known])[::-1]
    return float(unknown[int(false_alarm_rate * len(unknown) + 1e-9)])


def open_set_evaluation(embeddings, labels, *, draws=10, seed=0, false_alarm_rate=0.01):
    """How well some classes are told from each other and from all others, by rules for new classes.

    Each draw halves the classes. One half chooses the method, by dir and then by oscr, its
    threshold and its probabilities; the other, never seen, is scored. In either, a fifth of the
    classes is unknown and the others are known by half of their rows; their other rows and those of
    the unknown classes are the queries. So in five rounds, in which each class is unknown once.
    Classes of one row are never known.

    Intervals are 95 % ones, of Student's t: the deviation over draws of half of the classes is the
    standard error of the delete-half jackknife.

    Args:
        embeddings, labels: As for `class_means`; 8 classes or more must have two rows or more.
        draws: Number of draws, 1 or more.
        seed: Integer >= 0, seed of the draws.
        false_alarm_rate: As for `open_set_scores`.

    Returns:
        A dict of means over the draws:

        * "scores": of the chosen method, those of `open_set_scores`, and "ece" of `reliability`;
          "pooled_ece" is that of the queries of all draws together, which averages out how the
          classes of a draw differ from those that chose.
        * "intervals": {name: (low, high)} of these; none of one draw.
        * "methods": {method: those of `open_set_scores`, and "chosen", the share of the draws}.
        * "rules": {"chosen", "naive": {"false_alarm_rate", "dir"}} of the thresholds of the other
          half; naive is that of the distance to the nearest row.
        * "calibrations": {"isotonic", "platt"}, shares of the draws.
        * "reliability": that of the queries of all draws.

    Raises:
        TypeError, ValueError: As for `class_means`, or if there are too few classes.

    Source:
        Shao, Wu. A general theory for jackknife variance estimation. Annals of Statistics 1989.
    """
    embeddings, labels = inputs.embeddings_and_labels(embeddings, labels)
    draws, rng = inputs.whole_number(draws, "draws", at_least=1), inputs.generator(seed)
    check_share(false_alarm_rate=false_alarm_rate)
    check_classes(labels)
    drawn = {name: [] for name in ("scores", *METHODS, "chosen", "naive", "calibrations")}
    kind, decided = {"false_alarm_rate": false_alarm_rate}, []
    for _ in range(draws):
        choosing, reporting = _parts(embeddings, labels, rng)
        best, _, (calibration, probability) = _chosen(choosing, kind)
        after = _scores(reporting, kind)
        for method in METHODS:
            drawn[method].append({**after[method], "chosen": float(method == best)})
        known = reporting.truth != _UNKNOWN
        for rule, method in (("naive", "nearest"), ("chosen", best)):
            threshold = open_set_threshold(choosing.found[method][1], choosing.truth, **kind)
            predicted, scores = reporting.found[method]
            right, accepted = predicted == reporting.truth, scores > threshold
            alarms, hits = np.mean(accepted[~known]), np.mean((accepted & right)[known])
            drawn[rule].append({"false_alarm_rate": alarms, "dir": hits})
        drawn["calibrations"].append({each: float(each == calibration) for each in CALIBRATIONS})
        decided.append((probability(scores), right))  # of the chosen rule
        drawn["scores"].append({**after[best], "ece": reliability(*decided[-1])["ece"]})
    means = {name: _mean(values) for name, values in drawn.items()}
    together = reliability(*map(np.concatenate, zip(*decided, strict=True)))
    return {
        "scores": {**means["scores"], "pooled_ece": together["ece"]},
        "intervals": _intervals(drawn["scores"]) if draws > 1 else {},
        "methods": {method: means[method] for method in METHODS},
        "rules": {rule: means[rule] for rule in ("chosen", "naive")},
        "calibrations": means["calibrations"],
        "reliability": together,
    }


class OpenSetDecision(NamedTuple):
    """A rule of `open_set_decision` with its threshold and probability, to be served."""

    rule: OpenSetRule
    threshold: float  # scores beyond it are of known classes
    calibration: Isotonic | Platt
    names: list  # of the classes, in the order of their ids
    facts: dict  # of the choice: "false_alarm_rate", and what `open_set_scores` are

    def __call__(self, embeddings):
        """{"class_id": place in `names`, "score", "probability", "known"}, each (n,)."""
        predicted, scores = self.rule(embeddings)
        return {
            "class_id": np.searchsorted(np.unique(self.rule.ids), predicted),
            "score": scores,
            "probability": self.calibration(scores),
            "known": scores > self.threshold,
        }


def open_set_decision(embeddings, labels, names=None, *, seed=0, false_alarm_rate=0.01):
    """Chooses how to decide between the classes of these rows and none of them.

    All classes choose the method, the threshold and the probability, as half of them do in
    `open_set_evaluation`. The method then knows all by all rows.

    Args:
        embeddings, labels: As for `open_set_evaluation`.
        names: (classes,) texts, in the order of the ids; these as texts if None.
        seed, false_alarm_rate: As for `open_set_evaluation`.

    Returns:
        An `OpenSetDecision`, a function of (n, dim) embeddings.

    Raises:
        TypeError, ValueError: As for `open_set_evaluation`, or if there is not a name per class.
    """
    embeddings, labels = inputs.embeddings_and_labels(embeddings, labels)
    kind, rng = {"false_alarm_rate": false_alarm_rate}, inputs.generator(seed)
    check_share(**kind)
    check_classes(labels)
    ids = np.unique(labels)
    names = list(map(str, ids) if names is None else names)
    counts = {"names": len(names), "classes": len(ids)}
    check(len(names) == len(ids), "`names` must have one per class", **counts)
    (asked,) = _parts(embeddings, labels, rng, 1)
    best, scores, (_, calibration) = _chosen(asked, kind)
    threshold = open_set_threshold(asked.found[best][1], asked.truth, **kind)
    rule = OpenSetRule.fitted(embeddings, labels, best)
    return OpenSetDecision(rule, threshold, calibration, names, kind | scores)


def check_classes(labels):
    """Raises a ValueError if `open_set_evaluation` needs more classes."""
    classes = int(np.sum(np.unique(labels, return_counts=True)[1] > 1))
    expectation = f"{_FEWEST_CLASSES} classes or more must have 2 images or more"
    check(classes >= _FEWEST_CLASSES, expectation, classes=classes)


class _Part(NamedTuple):
    """Queries of some of the classes."""

    found: dict[str, tuple[Any, Any]]  # {method: what `open_set_predictions` returns}
    truth: np.ndarray  # (n,) class numbers, -1 of unknown classes
    classes: np.ndarray  # (n,) class numbers


def _scores(part: _Part, kind):
    """{method: its `open_set_scores`} of the queries of a part."""
    return {m: open_set_scores(*found, part.truth, **kind) for m, found in part.found.items()}


def _chosen(part, kind):
    """The best method for a part, its `open_set_scores`, and what `calibrate_probability` fits."""
    scores = _scores(part, kind)
    best = max(METHODS, key=lambda method: (scores[method]["dir"], scores[method]["oscr"]))
    predicted, given = part.found[best]
    return best, scores[best], calibrate_probability(given, predicted == part.truth, part.classes)


def _parts(embeddings, labels, rng, number=2):
    """Yields a `_Part` of the classes for each of some parts, drawn at random.

    In each of its rounds another fifth of its classes is unknown; those of one row always are.
    """
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    several, fifths = np.flatnonzero(counts > 1), rng.integers(number * _ROUNDS, size=len(counts))
    fifths[rng.permutation(several)] = np.arange(len(several)) % (number * _ROUNDS)
    in_gallery, fifth = drawn_rows(classes, counts // 2, rng), fifths[classes]
    for part in range(number):
        asked, roles = fifth % number == part, []
        for unknown in range(part, number * _ROUNDS, number)[::-1]:
            known = asked & (fifth != unknown) & (counts[classes] > 1)
            gallery = known & in_gallery
            queries = asked & ~gallery
            data = embeddings[queries], embeddings[gallery], classes[gallery]
            found = [open_set_predictions(*data, method=method) for method in METHODS]
            truth = np.where(known, classes, _UNKNOWN)[queries]
            roles.append((*zip(*found, strict=True), truth, classes[queries]))
        joined = [np.concatenate(column, axis=-1) for column in zip(*roles, strict=True)]
        found = zip(METHODS, zip(*joined[:2], strict=True), strict=True)
        yield _Part(dict(found), *joined[2:])


def _checked(predicted, scores, labels):
    """(n,) float64 scores, and booleans: whether rows are right, and of known classes."""
    predicted, labels = inputs.class_ids(predicted, "predicted"), inputs.class_ids(labels)
    scores = inputs.finite_rows(np.reshape(scores, (-1, 1)), "scores")[:, 0]
    for name, array in (("predicted", predicted), ("scores", scores)):
        inputs.check_alike("batch size", **{name: array, "labels": labels})
    known = labels != _UNKNOWN
    counts = {"known": int(known.sum()), "unknown": int((~known).sum())}
    check(min(counts.values()), "`labels` must have class ids and, for unknown ones, -1", **counts)
    return scores, known & (predicted == labels), known


def _mean(draws):
    """{name: mean} of a list of {name: value}."""
    return {name: float(np.mean([draw[name] for draw in draws])) for name in draws[0]}


def _intervals(draws):
    """{name: (low, high)}, within [0, 1], of a list of {name: value}."""
    half = scipy.stats.t.ppf(0.975, len(draws) - 1)
    spread = {name: half * np.std([draw[name] for draw in draws], ddof=1) for name in draws[0]}
    return {
        name: tuple(np.clip([mean - spread[name], mean + spread[name]], 0.0, 1.0).tolist())
        for name, mean in _mean(draws).items()
    }
