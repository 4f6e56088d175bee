"""Verification: whether two images are of one class, by a threshold on distance, over all pairs.

Distances and thresholds are compared after rounding to 33 binary digits (10 decimal ones), so that
distances that differ only by rounding errors tie. A pair matches if its distance is at or below the
threshold; tied pairs match together.
"""

from typing import NamedTuple

import numpy as np

from tfdml.checks import check, check_number, check_share
from tfdml.evaluation import inputs
from tfdml.evaluation.pairs import AllPairs, errors_meet

# The bits of non-negative floats have the order of the floats. A key is those bits, rounded: 11 of
# the exponent and 32 of the fraction; its upper half distinguishes 1024 numbers per power of 2.
_DROPPED_BITS = 20
_LOWER_BITS = 22
_LOWER = 2**_LOWER_BITS - 1
_UPPER_KEYS = 2**21
_EXACT_PAIRS = 2**23  # up to this many are sorted, more are counted in bins
_FINE_BINS = 2**21
_SAMPLE = 2**17  # pairs of each kind that determine where bins are fine


def verification_scores(embeddings, labels, *, false_match_rates=(1e-1, 1e-2, 1e-3)):
    """Verification scores: a threshold on distance decides whether two rows are of one class.

    Over all unordered pairs of different rows, with D the Euclidean distance: a pair matches if
    D <= threshold. The true-match rate is the share of positive pairs that match, the false-match
    rate that of negative pairs.

        auc = P(D positive < D negative) + P(D positive = D negative) / 2

    Up to 8.4 million pairs (4,096 rows) it is exact, except that distances that agree to 10 digits
    tie. More pairs are counted in bins, by one float64 product of all pairs in blocks. The rates
    are then exact for the returned thresholds, which are at most a bin below the best; `auc_error`
    bounds the error of `auc`; the error of the equal error rate is below the larger share of
    positive or of negative pairs in a bin next to its threshold. There are 2 million bins where a
    sample of 262,144 pairs has distances, of relative width 5e-7 if these span a power of 2, and
    bins of relative width 1e-3 elsewhere.
    Memory does not grow with the number of pairs: about 24 * n * dim bytes and 300 MB.

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
    pairs = AllPairs(embeddings, labels)
    curve = _curve(pairs)
    positive, negative = np.diff(curve.positive), np.diff(curve.negative)
    before = curve.negative[:-1] + negative / 2  # ties count half
    lost = np.sum(positive / pairs.positive * (before / pairs.negative))
    # Distances within one bin may have either order, except those of 0.
    shared = np.where(curve.first[1:] > 0, positive / pairs.positive, 0)
    unsure = np.sum(shared * (negative / pairs.negative)) / 2
    found, accepted = curve.positive / pairs.positive, curve.negative / pairs.negative
    equal, place = errors_meet(1 - found[::-1], accepted[::-1])
    best = {rate: _last_within(curve.negative, rate) for rate in rates}
    thresholds = {rate: _distance(curve.first[at + 1] - 1, pairs) for rate, at in best.items()}
    return {
        "auc": float(max(1 - lost, 0.0)),
        "auc_error": 0.0 if curve.exact else float(unsure),
        "equal_error_rate": equal,
        "equal_error_threshold": _distance(curve.last[::-1][place], pairs),
        "true_match_rates": {rate: float(found[at]) for rate, at in best.items()},
        "thresholds": thresholds,
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
    pairs = AllPairs(embeddings, labels)
    curve = _curve(pairs)
    accepted, found = curve.negative / pairs.negative, curve.positive / pairs.positive
    places = np.arange(len(accepted))
    if len(places) > points:
        even = max(points - points // 2, 2)
        along = np.searchsorted(accepted + found, np.linspace(0, 2, even))
        counts = np.geomspace(1, pairs.negative, points - even)
        rare = np.searchsorted(curve.negative, counts, side="right") - 1
        # Due to rounding, the sum of the rates may end slightly below 2.
        places = np.union1d(np.minimum(along, len(accepted) - 1), rare)
    return {
        "false_match_rate": accepted[places],
        "true_match_rate": found[places],
        "threshold": np.array([_distance(key, pairs) for key in curve.last[places]]),
    }


def calibrate_threshold(embeddings, labels, *, false_match_rate):
    """Finds the largest threshold on distance within a false-match rate.

    Exact for any number of pairs, among numbers of 33 binary digits: the threshold lies just below
    the nearest negative pair that may not match, and below all that tie with it. Costs two float64
    products of all pairs, in blocks.

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
    pairs = AllPairs(embeddings, labels)
    # The key of the pair is found by its upper half first, then by its lower half.
    counts = _negatives_up_to(pairs)
    upper = _last_within(counts, false_match_rate)
    lower_counts = counts[upper] + _negatives_up_to(pairs, upper)
    lower = _last_within(lower_counts, false_match_rate, pairs.negative)
    return _distance((upper << _LOWER_BITS) + lower - 1, pairs)


def rates_at_threshold(embeddings, labels, threshold):
    """Match rates of positive and of negative pairs at a threshold on distance.

    Exact for any number of pairs, in blocks. Evaluates, for example, a threshold that
    `calibrate_threshold` found on the training classes on unseen ones.

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
    pairs = AllPairs(embeddings, labels)
    with np.errstate(over="ignore", under="ignore"):  # infinity and 0 are right then
        scaled = np.ldexp(np.array([abs(threshold)], np.float64), -pairs.exponent)
    key = _keys(scaled)[0] if threshold >= 0 else -1
    matched = [0, 0]
    for positive, distances in pairs.blocks():
        matched[positive] += np.count_nonzero(_keys(distances) <= key)
    return {
        "false_match_rate": float(matched[False] / pairs.negative),
        "true_match_rate": float(matched[True] / pairs.positive),
    }


class _Curve(NamedTuple):
    """Numbers of matches at ascending thresholds; no pair matches at the first."""

    first: np.ndarray  # smallest key of the pairs that are added at a place
    last: np.ndarray  # largest key of these pairs, the threshold of the place
    positive: np.ndarray  # positive pairs up to the place
    negative: np.ndarray
    exact: bool


def _curve(pairs):
    if pairs.positive + pairs.negative > _EXACT_PAIRS:
        return _binned_curve(pairs)
    of_kind = [], []
    for positive, distances in pairs.blocks():
        of_kind[positive].append(_keys(distances))
    negative, positive = (np.sort(np.concatenate(kind)) for kind in of_kind)
    keys = np.append(-1, np.union1d(positive, negative))
    counts = (np.searchsorted(kind, keys, side="right") for kind in (positive, negative))
    return _Curve(keys, keys, *counts, exact=True)


def _binned_curve(pairs):
    """Counts pairs in bins: fine where a sample has distances, coarse elsewhere."""
    used = np.unique(_keys(pairs.sample(_SAMPLE)) >> _LOWER_BITS)
    fine_bits = min(int(np.log2(_FINE_BINS // len(used))), _LOWER_BITS)
    shifts = np.full(_UPPER_KEYS, _LOWER_BITS)
    shifts[used] -= fine_bits
    ends = np.cumsum(1 << (_LOWER_BITS - shifts))
    starts = ends - (1 << (_LOWER_BITS - shifts))
    counts = np.zeros((2, ends[-1]), np.int64)
    for positive, distances in pairs.blocks():
        keys = _keys(distances)
        upper = keys >> _LOWER_BITS
        keys &= _LOWER
        keys >>= shifts[upper]
        keys += starts[upper]  # the bins of an upper key begin at its start
        _count(counts[int(positive)], keys)
    used = np.flatnonzero(counts.sum(axis=0))
    upper = np.searchsorted(ends, used, side="right")
    first = (upper << _LOWER_BITS) + ((used - starts[upper]) << shifts[upper])
    last = first + (1 << shifts[upper]) - 1
    negative, positive = (np.append(0, np.cumsum(kind[used])) for kind in counts)
    return _Curve(np.append(-1, first), np.append(-1, last), positive, negative, exact=False)


def _negatives_up_to(pairs, upper=None):
    """Cumulative numbers of negative pairs by their upper keys or, given one, by the lower keys."""
    counts = np.zeros(_LOWER + 1, np.int64)
    for positive, distances in pairs.blocks():
        if not positive:
            keys = _keys(distances)
            halves = keys >> _LOWER_BITS
            _count(counts, halves if upper is None else keys[halves == upper] & _LOWER)
    return np.append(0, np.cumsum(counts))


def _count(counts, places):
    if places.size:
        low = places.min()
        found = np.bincount(places - low)
        counts[low : low + len(found)] += found


def _last_within(counts, rate, total=None):
    """The last place of ascending counts whose share of the total is within the rate."""
    total = counts[-1] if total is None else total
    return int(np.searchsorted(counts / total, rate, side="right")) - 1


def _keys(distances):
    """(n,) integers in the order of distances, equal if these agree to 33 binary digits."""
    bits = distances.reshape(-1).view(np.int64) + 2 ** (_DROPPED_BITS - 1)
    bits >>= _DROPPED_BITS
    return bits


def _distance(key, pairs):
    if key < 0:
        return -1.0  # below every distance
    scaled = np.array([int(key) << _DROPPED_BITS], np.int64).view(np.float64)[0]
    return float(np.ldexp(scaled, pairs.exponent))
