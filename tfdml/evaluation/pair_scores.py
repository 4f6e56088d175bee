"""Scores of pairs of rows by their distance: statistics, and verification by a threshold."""

from typing import Any

import numpy as np
from sklearn.metrics import roc_curve

from tfdml.checks import check, check_number, check_share
from tfdml.evaluation import inputs
from tfdml.evaluation.pair_distances import rounded
from tfdml.evaluation.ranking import rank


def pair_histogram(embeddings, labels) -> Any:
    """The `Histogram` of all pairs; arguments and errors as for `distance_statistics`."""
    embeddings, labels = inputs.embeddings_and_labels(embeddings, labels)
    _class_sizes(labels)
    return rank(embeddings, labels, nearest=0, depth=0, histogram=True).histogram


def distance_statistics(embeddings, labels):
    """Mean and variance of the distances of positive and of negative pairs, and their LDA score.

    Over all unordered pairs of different rows, with D the Euclidean distance (not squared):

        lda = (mean of negative D - mean of positive D)**2
              / (variance of positive D + variance of negative D)

    The larger `lda`, the better a threshold separates both kinds of pairs, at any scale. Distances
    are exact to about 1e-10 of the largest; published ones are of rows of unit length.

    Args:
        embeddings: (n, dim) floats, finite; taken as given: not normalised.
        labels: (n,) or (n, 1) integers of any size, one class id per row.

    Returns:
        {"positive_mean", "positive_variance", "negative_mean", "negative_variance", "lda"}, Python
        floats. If both variances are 0, `lda` is infinite, or 0 if the means are equal too.

    Raises:
        TypeError, ValueError: As for `class_means`, or if no two rows share a class, or all do.

    Source:
        Yuan, Yang, Zhang. Hard-aware deeply cascaded embedding. ICCV 2017, eq. 12.
    """
    return statistics_of(pair_histogram(embeddings, labels))


def statistics_of(histogram):
    """As `distance_statistics`, from a `Histogram`."""
    gap = abs(histogram.negative_mean - histogram.positive_mean)
    spread = np.hypot(histogram.negative_deviation, histogram.positive_deviation)
    with np.errstate(over="ignore", under="ignore"):
        return {
            "positive_mean": histogram.positive_mean,
            "positive_variance": float(np.square(histogram.positive_deviation)),
            "negative_mean": histogram.negative_mean,
            "negative_variance": float(np.square(histogram.negative_deviation)),
            "lda": float((gap / spread) ** 2) if spread else (np.inf if gap else 0.0),
        }


def verification_scores(embeddings, labels, *, false_match_rates=(1e-1, 1e-2, 1e-3)):
    """Verification scores: a threshold on distance decides whether two rows are of one class.

    Over all unordered pairs of different rows, with D the Euclidean distance: a pair matches if
    D <= threshold. The true-match rate is the share of positive pairs that match, the false-match
    rate that of negative pairs.

        auc = P(D positive < D negative) + P(D positive = D negative) / 2

    Distances that agree to 10 digits (33 binary ones) tie. More than 8.4 million pairs (4,096 rows)
    are counted in the bins of a `Histogram`: the rates are exact for the returned thresholds, which
    are at most a bin below the best. Other arguments and errors are those of `distance_statistics`.

    Args:
        false_match_rates: Largest allowed false-match rates, one or several; each >= 0 and < 1.

    Returns:
        A dict of Python floats:

        * "auc", and "auc_error", the bound of its error: 0.0 up to 8.4 million pairs.
        * "equal_error_rate": mean of the false-non-match and false-match rates at the threshold
          where they are nearest to each other, "equal_error_threshold".
        * "thresholds": {false_match_rate: that of `calibrate_threshold`}.
        * "true_match_rates": {false_match_rate: true-match rate} at these.

    Source:
        Fawcett. An introduction to ROC analysis. Pattern Recognition Letters 2006, 27(8).
        Differs: rates are not interpolated between thresholds.
    """
    rates = list(false_match_rates) if np.iterable(false_match_rates) else [false_match_rates]
    check(len(rates), "`false_match_rates` must not be empty", false_match_rates=false_match_rates)
    for rate in rates:
        check_share(false_match_rates=rate)
    return verification_of(pair_histogram(embeddings, labels), rates)


def verification_of(histogram, rates):
    """As `verification_scores`, from a `Histogram` and a list of checked false-match rates."""
    found, accepted, thresholds = _curve(histogram)
    positive, negative = np.diff(found), np.diff(accepted)
    lost = np.sum(positive * (accepted[:-1] + negative / 2))  # ties count half
    # Distances within one bin may have either order, except those of 0.
    unsure = np.sum(positive * negative * (histogram.high > 0)) / 2
    equal, place = _errors_meet(1 - found[::-1], accepted[::-1])
    best = {rate: int(np.searchsorted(accepted, rate, side="right")) - 1 for rate in rates}
    return {
        "auc": float(max(1 - lost, 0.0)),
        "auc_error": 0.0 if histogram.exact else float(unsure),
        "equal_error_rate": equal,
        "equal_error_threshold": float(thresholds[::-1][place]),
        "true_match_rates": {rate: float(found[at]) for rate, at in best.items()},
        "thresholds": {rate: _below(histogram.low[at]) for rate, at in best.items()},
    }


def verification_curve(embeddings, labels, *, points=1000):
    """ROC curve: match rates over all thresholds on distance, for plotting.

    Of at most `points`, 2 or more, half are spread evenly along the curve, half evenly over the
    logarithm of the false-match rate; each is exact. Other arguments and errors are those of
    `distance_statistics`.

    Returns:
        {"false_match_rate", "true_match_rate", "threshold"}, non-decreasing float64 arrays of equal
        length, from (0, 0, -1), where no pair matches, to (1, 1, largest distance).
    """
    points = inputs.whole_number(points, "points", at_least=2)
    histogram = pair_histogram(embeddings, labels)
    found, accepted, thresholds = _curve(histogram)
    places = np.arange(len(accepted))
    if len(places) > points:
        even = max(points - points // 2, 2)
        along = np.searchsorted(accepted + found, np.linspace(0, 2, even))
        rates = np.geomspace(1 / histogram.negative.sum(), 1, points - even)
        rare = np.searchsorted(accepted, rates, side="right") - 1
        # Due to rounding, the sum of the rates may end slightly below 2.
        places = np.union1d(np.minimum(along, len(accepted) - 1), rare)
    curve = {"false_match_rate": accepted, "true_match_rate": found, "threshold": thresholds}
    return {name: values[places] for name, values in curve.items()}


def calibrate_threshold(embeddings, labels, *, false_match_rate):
    """Finds the largest threshold on distance within a false-match rate, a Python float.

    It lies just below the nearest negative pair that may not match, and all that tie with it; -1.0,
    which matches no pair, if too many negative pairs are at distance 0. Other arguments and errors
    are those of `distance_statistics`.

    Args:
        false_match_rate: Share of the negative pairs that may match; >= 0 and < 1.
    """
    check_share(false_match_rate=false_match_rate)
    scores = verification_of(pair_histogram(embeddings, labels), [false_match_rate])
    return scores["thresholds"][false_match_rate]


def rates_at_threshold(embeddings, labels, threshold):
    """{"false_match_rate", "true_match_rate"} of pairs at a threshold on distance, Python floats.

    Exact up to 8.4 million pairs; of more, those in the bin of the threshold do not match. Other
    arguments and errors are those of `distance_statistics`.

    Args:
        threshold: Euclidean distance, not squared, at or below which a pair matches; a negative one
            matches none. Distances that agree with it to 10 digits match.
    """
    check_number(threshold=threshold)
    check(not np.isnan(threshold), "`threshold` must not be NaN", threshold=threshold)
    return rates_of(pair_histogram(embeddings, labels), threshold)


def rates_of(histogram, threshold):
    """As `rates_at_threshold`, from a `Histogram`."""
    limit = rounded(np.array([abs(threshold)], np.float64))[0] if threshold >= 0 else -1.0
    at = np.searchsorted(histogram.high, limit, side="right")
    found, accepted, _ = _curve(histogram)
    return {"false_match_rate": float(accepted[at]), "true_match_rate": float(found[at])}


def sample_pairs(labels, count, *, seed=0):
    """Two (count, 2) arrays of row numbers: positive and negative pairs, drawn with replacement."""
    rng = np.random.default_rng(seed)
    labels = inputs.class_ids(labels)
    sizes, by_class = _class_sizes(labels), np.argsort(labels, kind="stable")
    starts, rows = np.cumsum(sizes) - sizes, len(by_class)
    # A row is drawn with probability proportional to its number of partners, then a partner:
    # cyclically in class order, from the row itself or, for negatives, from the end of its class.
    partners, others = sizes - 1, rows - sizes
    drawn = rng.choice(len(sizes), count, p=sizes * partners / np.sum(sizes * partners))
    first = rng.integers(0, sizes[drawn])
    second = (first + rng.integers(1, sizes[drawn])) % sizes[drawn]
    positive = np.stack([starts[drawn] + first, starts[drawn] + second], axis=1)
    drawn = rng.choice(len(sizes), count, p=sizes * others / np.sum(sizes * others))
    first = starts[drawn] + rng.integers(0, sizes[drawn])
    second = (starts[drawn] + sizes[drawn] + rng.integers(0, others[drawn])) % rows
    negative = np.stack([first, second], axis=1)
    return by_class[positive], by_class[negative]


def equal_error_rate(positive, negative):
    """The error rate of (p,) and (n,) scores of pairs where both kinds of errors are nearest."""
    scores = np.concatenate([positive, negative])
    same = np.arange(len(scores)) < len(positive)
    accepted, found, _ = roc_curve(same, scores, drop_intermediate=False)
    return _errors_meet(1 - found, accepted)[0]


def _errors_meet(missed, accepted):
    """The mean of two (n,) error rates where they are nearest to each other, and its index."""
    nearest = int(np.argmin(np.abs(missed - accepted)))
    return float((missed[nearest] + accepted[nearest]) / 2), nearest


def _curve(histogram):
    """True-match rates, false-match rates and thresholds, (b + 1,) each, from no match on."""
    counts = (np.append(0, np.cumsum(of)) for of in (histogram.positive, histogram.negative))
    return *(of / of[-1] for of in counts), np.append(-1.0, histogram.high)


def _below(distance):
    """A threshold just below a distance, and below all that tie with it."""
    return float(distance * (1 - 2.0**-33)) if distance > 0 else -1.0


def _class_sizes(labels):
    """(C,) numbers of rows of the classes, of which there are pairs of both kinds."""
    _, sizes = np.unique(labels, return_counts=True)
    expectation = "`labels` must hold two classes or more, and two rows or more of one of them"
    check(1 < len(sizes) < len(labels), expectation, rows=len(labels), classes=len(sizes))
    return sizes
