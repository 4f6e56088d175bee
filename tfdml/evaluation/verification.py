"""Verification: whether two images are of one class, by a threshold on distance, over all pairs.

Distances and thresholds are compared after rounding to 33 binary digits (10 decimal ones), so that
distances that differ only by rounding errors tie. A pair matches if its distance is at or below the
threshold; tied pairs match together.
"""

import numpy as np

from tfdml.checks import check, check_number, check_share
from tfdml.evaluation import inputs
from tfdml.evaluation.histogram import rounded
from tfdml.evaluation.pairs import errors_meet, pair_histogram


def verification_scores(embeddings, labels, *, false_match_rates=(1e-1, 1e-2, 1e-3)):
    """Verification scores: a threshold on distance decides whether two rows are of one class.

    Over all unordered pairs of different rows, with D the Euclidean distance: a pair matches if
    D <= threshold. The true-match rate is the share of positive pairs that match, the false-match
    rate that of negative pairs.

        auc = P(D positive < D negative) + P(D positive = D negative) / 2

    Up to 8.4 million pairs (4,096 rows) it is exact, except that distances that agree to 10 digits
    tie. More pairs are counted in the bins of a `Histogram`. The rates are then exact for the
    returned thresholds, which are at most a bin below the best; `auc_error` bounds the error of
    `auc`; the error of the equal error rate is below the larger share of positive or of negative
    pairs in a bin next to its threshold. The cost is that of `rank` with its histogram.

    Args:
        embeddings: (n, dim) floats, finite; taken as given: not normalised.
        labels: (n,) or (n, 1) integers of any size, one class id per row.
        false_match_rates: Largest allowed false-match rates, one or several; each >= 0 and < 1.
            Below 1 / (number of negative pairs), no negative pair may match.

    Returns:
        A dict:

        * "auc": Python float; 1 if a threshold separates both kinds, 0.5 for collapsed embeddings.
        * "auc_error": bound of the error of `auc`; 0.0 up to 8.4 million pairs.
        * "equal_error_rate": mean of the false-non-match and false-match rates at the threshold
          where they are nearest to each other; 0 to 1.
        * "equal_error_threshold": that threshold; -1.0 if no pair matches there.
        * "true_match_rates": {false_match_rate: true-match rate} at "thresholds".
        * "thresholds": {false_match_rate: largest threshold within that rate}, as of
          `calibrate_threshold`; -1.0, which matches no pair, if even threshold 0 exceeds the rate.

    Raises:
        TypeError: If `labels` are not integers, `embeddings` not floats or a rate not a number.
        ValueError: If the shapes disagree, an input is empty or not finite, no two rows share a
            class, all do, or a rate is out of range.

    Source:
        Fawcett. An introduction to ROC analysis. Pattern Recognition Letters 2006, 27(8).
        Differs: rates are not interpolated between thresholds.

    Example:
        Positive distances 1 and 3, negative ones 4, 7, 3 and 6: one of 8 comparisons is a tie.

        >>> from tfdml.evaluation import verification_scores
        >>> line = np.array([[0.0], [1.0], [4.0], [7.0]])
        >>> scores = verification_scores(line, np.array([0, 0, 1, 1]), false_match_rates=0.1)
        >>> scores["auc"], scores["equal_error_rate"], scores["true_match_rates"]
        (0.9375, 0.125, {0.1: 0.5})
    """
    rates = list(false_match_rates) if np.iterable(false_match_rates) else [false_match_rates]
    check(len(rates), "`false_match_rates` must not be empty", false_match_rates=false_match_rates)
    for rate in rates:
        check_share(false_match_rates=rate)
    return verification_of(pair_histogram(embeddings, labels), rates)


def verification_of(histogram, rates):
    """As `verification_scores`, from a `Histogram` and a list of checked false-match rates."""
    found, accepted = _match_rates(histogram)
    positive, negative = np.diff(found), np.diff(accepted)
    lost = np.sum(positive * (accepted[:-1] + negative / 2))  # ties count half
    # Distances within one bin may have either order, except those of 0.
    unsure = np.sum(positive * negative * (histogram.high > 0)) / 2
    equal, place = errors_meet(1 - found[::-1], accepted[::-1])
    best = {rate: _last_within(accepted, rate) for rate in rates}
    return {
        "auc": float(max(1 - lost, 0.0)),
        "auc_error": 0.0 if histogram.exact else float(unsure),
        "equal_error_rate": equal,
        "equal_error_threshold": float(_thresholds(histogram)[::-1][place]),
        "true_match_rates": {rate: float(found[at]) for rate, at in best.items()},
        "thresholds": {rate: _below(histogram.low[at]) for rate, at in best.items()},
    }


def verification_curve(embeddings, labels, *, points=1000):
    """ROC curve: match rates over all thresholds on distance, for plotting.

    Half of the points are spread evenly along the curve, half evenly over the logarithm of the
    false-match rate, so that it can be drawn on linear and logarithmic axes. Rates are exact for
    their thresholds.

    Args:
        embeddings: As for `verification_scores`.
        labels: As for `verification_scores`.
        points: Largest number of points; >= 2.

    Returns:
        {"false_match_rate", "true_match_rate", "threshold"}, non-decreasing float64 arrays of
        equal length. The first point is (0, 0, -1), where no pair matches, the last (1, 1, largest
        distance).

    Raises:
        TypeError: If `labels` are not integers or `embeddings` not floats.
        ValueError: As for `verification_scores`, or if `points` is out of range.

    Example:
        >>> from tfdml.evaluation import verification_curve
        >>> line = np.array([[0.0], [1.0], [4.0], [7.0]])
        >>> curve = verification_curve(line, np.array([0, 0, 1, 1]))
        >>> curve["true_match_rate"].tolist()
        [0.0, 0.5, 1.0, 1.0, 1.0, 1.0]
        >>> curve["false_match_rate"].tolist()
        [0.0, 0.0, 0.25, 0.5, 0.75, 1.0]
    """
    points = inputs.whole_number(points, "points", at_least=2)
    histogram = pair_histogram(embeddings, labels)
    found, accepted = _match_rates(histogram)
    places = np.arange(len(accepted))
    if len(places) > points:
        even = max(points - points // 2, 2)
        along = np.searchsorted(accepted + found, np.linspace(0, 2, even))
        rates = np.geomspace(1 / histogram.negative.sum(), 1, points - even)
        rare = np.searchsorted(accepted, rates, side="right") - 1
        # Due to rounding, the sum of the rates may end slightly below 2.
        places = np.union1d(np.minimum(along, len(accepted) - 1), rare)
    return {
        "false_match_rate": accepted[places],
        "true_match_rate": found[places],
        "threshold": _thresholds(histogram)[places],
    }


def calibrate_threshold(embeddings, labels, *, false_match_rate):
    """Finds the largest threshold on distance within a false-match rate.

    The threshold lies just below the nearest negative pair that may not match, and below all that
    tie with it: the one in "thresholds" of `verification_scores`.

    Args:
        embeddings: (n, dim) floats, finite; taken as given: not normalised. Those of training
            classes, or of held-out ones.
        labels: (n,) or (n, 1) integers of any size, one class id per row.
        false_match_rate: Share of the negative pairs that may match; >= 0 and < 1.

    Returns:
        A Python float, the distance at or below which a pair matches; -1.0, which matches no pair,
        if too many negative pairs are at distance 0, as with collapsed embeddings.

    Raises:
        TypeError: If `labels` are not integers, `embeddings` not floats or the rate not a number.
        ValueError: If the shapes disagree, an input is empty or not finite, no two rows share a
            class, all do, or the rate is out of range.

    Example:
        Negative distances 3, 4, 6 and 7: the second one may not match.

        >>> from tfdml.evaluation import calibrate_threshold
        >>> line = np.array([[0.0], [1.0], [4.0], [7.0]])
        >>> round(calibrate_threshold(line, np.array([0, 0, 1, 1]), false_match_rate=0.25), 6)
        4.0
    """
    check_share(false_match_rate=false_match_rate)
    scores = verification_of(pair_histogram(embeddings, labels), [false_match_rate])
    return scores["thresholds"][false_match_rate]


def rates_at_threshold(embeddings, labels, threshold):
    """Match rates of positive and of negative pairs at a threshold on distance.

    Evaluates, for example, a threshold that `calibrate_threshold` found on the training classes on
    unseen ones. Exact up to 8.4 million pairs; of more, those in the bin of the threshold do not
    match.

    Args:
        embeddings: (n, dim) floats, finite; taken as given: not normalised.
        labels: (n,) or (n, 1) integers of any size, one class id per row.
        threshold: Euclidean distance, not squared, at or below which a pair matches; a negative one
            matches none. Distances that agree with it to 10 digits match.

    Returns:
        {"false_match_rate", "true_match_rate"}, Python floats.

    Raises:
        TypeError: If `labels` are not integers, `embeddings` not floats or `threshold` not a
            number.
        ValueError: If the shapes disagree, an input is empty or not finite, no two rows share a
            class, all do, or `threshold` is NaN.

    Example:
        >>> from tfdml.evaluation import rates_at_threshold
        >>> line = np.array([[0.0], [1.0], [4.0], [7.0]])
        >>> rates_at_threshold(line, np.array([0, 0, 1, 1]), 3.0)
        {'false_match_rate': 0.25, 'true_match_rate': 1.0}
    """
    check_number(threshold=threshold)
    check(not np.isnan(threshold), "`threshold` must not be NaN", threshold=threshold)
    return rates_of(pair_histogram(embeddings, labels), threshold)


def rates_of(histogram, threshold):
    """As `rates_at_threshold`, from a `Histogram`."""
    limit = rounded(np.array([abs(threshold)], np.float64))[0] if threshold >= 0 else -1.0
    at = np.searchsorted(histogram.high, limit, side="right")
    found, accepted = _match_rates(histogram)
    return {"false_match_rate": float(accepted[at]), "true_match_rate": float(found[at])}


def _match_rates(histogram):
    """True-match and false-match rates, (b + 1,) each, from that of no pair on."""
    counts = (np.append(0, np.cumsum(of)) for of in (histogram.positive, histogram.negative))
    return (of / of[-1] for of in counts)


def _thresholds(histogram):
    """(b + 1,) thresholds of `_match_rates`."""
    return np.append(-1.0, histogram.high)


def _last_within(accepted, rate):
    """The last place of ascending rates that is within the rate."""
    return int(np.searchsorted(accepted, rate, side="right")) - 1


def _below(distance):
    """A threshold just below a distance, and below all that tie with it."""
    return float(distance * (1 - 2.0**-33)) if distance > 0 else -1.0
