"""Probabilities that predictions are right, fitted to their scores, and how far they hold."""

from typing import NamedTuple

import numpy as np
import scipy.special
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GroupKFold

from tfdml.checks import check
from tfdml.evaluation import inputs


def calibrate_probability(scores, right, classes):
    """Fits the probability that a prediction is right to its score.

    By isotonic regression or a logistic function: that of the smaller log loss on classes left out,
    in 5 folds. Among p right and q wrong rows they count as (p + 1) / (p + 2) and 1 / (q + 2), so
    that no probability is 0 or 1.

    Args:
        scores: (n,) floats, finite, larger if surer.
        right: (n,) booleans, whether a row is of a known class, and of that predicted.
        classes: (n,) integers, the class ids, two or more, by which the folds are made.

    Returns:
        "isotonic" or "platt", and a function from (m,) scores to (m,) probabilities.

    Raises:
        TypeError, ValueError: If an argument is not such.

    Source:
        Platt. Probabilistic outputs for support vector machines. 1999; Zadrozny, Elkan.
        Transforming classifier scores into accurate multiclass probability estimates. KDD 2002.
    """
    scores = inputs.finite_rows(np.reshape(scores, (-1, 1)), "scores")[:, 0]
    right, classes = np.asarray(right, bool), inputs.class_ids(classes, "classes")
    for name, array in (("right", right), ("classes", classes)):
        inputs.check_alike("batch size", **{name: array, "scores": scores})
    groups = len(np.unique(classes))
    check(groups > 1, "`classes` must be of two classes or more", classes=groups)
    losses = dict.fromkeys(CALIBRATIONS, 0.0)
    for train, test in GroupKFold(min(5, groups)).split(scores, groups=classes):
        for kind, fit in CALIBRATIONS.items():
            probabilities = fit.fitted(scores[train], right[train])(scores[test])
            losses[kind] += log_loss(right[test], probabilities, normalize=False, labels=[0, 1])
    kind = min(losses, key=losses.__getitem__)
    return kind, CALIBRATIONS[kind].fitted(scores, right)


def reliability(probabilities, right, *, bins=15):
    """Mean probabilities and shares of right rows, in bins of equal numbers of the n rows.

    Of (n,) floats in [0, 1] and (n,) booleans. Equal probabilities share a bin, so that there may
    be fewer. The expected calibration error, which noise keeps above 0 in small samples, is

        ece = sum over bins of rows / n * |mean probability - share of right rows|

    Returns:
        {"ece": Python float, "rows", "probability", "right": lists of a number per bin}.

    Source:
        Nguyen, O'Connor. Posterior calibration and exploratory analysis for natural language
        processing models. EMNLP 2015 (bins of equal numbers).
    """
    edges = np.unique(np.quantile(probabilities, np.arange(1, bins) / bins))
    place = np.unique(np.searchsorted(edges, probabilities, side="right"), return_inverse=True)[1]
    rows = np.bincount(place)
    means, shares = (np.bincount(place, of) / rows for of in (probabilities, right))
    ece = float(np.average(np.abs(means - shares), weights=rows))
    columns = {"rows": rows, "probability": means, "right": shares}
    return {"ece": ece, **{name: of.tolist() for name, of in columns.items()}}


class Isotonic(NamedTuple):
    """A probability that is linear between some scores, and constant beyond them."""

    scores: np.ndarray
    probabilities: np.ndarray

    @classmethod
    def fitted(cls, scores, right):
        model = IsotonicRegression(out_of_bounds="clip").fit(scores, _outcomes(right))
        return cls(model.X_thresholds_, model.y_thresholds_)

    def __call__(self, scores):
        return np.interp(scores, *self)


class Platt(NamedTuple):
    """The logistic function of a slope times a score, and of an intercept."""

    slope: float
    intercept: float

    @classmethod
    def fitted(cls, scores, right):
        centre, scale, outcomes = scores.mean(), scores.std() or 1.0, _outcomes(right)
        rows, sides = np.tile((scores - centre) / scale, 2)[:, None], np.repeat([1, 0], len(scores))
        weights = np.concatenate([outcomes, 1 - outcomes])
        model = LogisticRegression(C=1e6).fit(rows, sides, weights)
        slope = float(model.coef_[0, 0] / scale)
        return cls(slope, float(model.intercept_[0] - slope * centre))

    def __call__(self, scores):
        return scipy.special.expit(self.slope * scores + self.intercept)


def _outcomes(right):
    hits = np.count_nonzero(right)
    return np.where(right, (hits + 1) / (hits + 2), 1 / (len(right) - hits + 2))


CALIBRATIONS = {"isotonic": Isotonic, "platt": Platt}
