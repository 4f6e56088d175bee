"""Pairs of rows: statistics of the distances of all, a sample, and what separates both kinds."""

from typing import Any

import numpy as np
from sklearn.metrics import roc_curve

from tfdml.checks import check
from tfdml.evaluation import inputs
from tfdml.evaluation.ranking import rank


def pair_histogram(embeddings, labels) -> Any:
    """The `Histogram` of all pairs; arguments and errors as for `distance_statistics`."""
    embeddings, labels = inputs.embeddings_and_labels(embeddings, labels)
    _rows_by_class(labels)
    return rank(embeddings, labels, nearest=0, depth=0, histogram=True).histogram


def distance_statistics(embeddings, labels):
    """Mean and variance of the distances of positive and of negative pairs, and their LDA score.

    Over all unordered pairs of different rows, with D the Euclidean distance (not squared):

        lda = (mean of negative D - mean of positive D)**2
              / (variance of positive D + variance of negative D)

    The larger `lda`, the better a threshold separates both kinds of pairs; it does not depend on
    the scale of the embeddings. Equal to float64 distances of every pair to about 1e-10 of the
    largest, at the cost of `rank` with its histogram.

    Args:
        embeddings: (n, dim) floats, finite; taken as given: not normalised. Published values are
            for rows of unit length, with distances from 0 to 2.
        labels: (n,) or (n, 1) integers of any size, one class id per row.

    Returns:
        {"positive_mean", "positive_variance", "negative_mean", "negative_variance", "lda"}, Python
        floats. Variances divide by the number of pairs. If both are 0, `lda` is infinite, or 0 if
        the means are equal too, as with collapsed embeddings.

    Raises:
        TypeError: If `labels` are not integers or `embeddings` not floats.
        ValueError: If the shapes disagree, an input is empty or not finite, no two rows share a
            class, or all do.

    Source:
        Yuan, Yang, Zhang. Hard-aware deeply cascaded embedding. ICCV 2017, eq. 12.

    Example:
        Positive distances 1 and 3, negative ones 4, 7, 3 and 6: (5 - 2)**2 / (1 + 2.5).

        >>> line = np.array([[0.0], [1.0], [4.0], [7.0]])
        >>> statistics = distance_statistics(line, np.array([0, 0, 1, 1]))
        >>> [round(value, 3) for value in statistics.values()]
        [2.0, 1.0, 5.0, 2.5, 2.571]
    """
    return statistics_of(pair_histogram(embeddings, labels))


def statistics_of(histogram):
    """As `distance_statistics`, from a `Histogram`."""
    statistics = {}
    with np.errstate(over="ignore", under="ignore"):
        for kind in ("positive", "negative"):
            statistics[f"{kind}_mean"] = getattr(histogram, f"{kind}_mean")
            deviation = getattr(histogram, f"{kind}_deviation")
            statistics[f"{kind}_variance"] = float(np.square(deviation))
    gap = abs(histogram.negative_mean - histogram.positive_mean)
    spread = np.hypot(histogram.negative_deviation, histogram.positive_deviation)
    statistics["lda"] = float((gap / spread) ** 2) if spread else (np.inf if gap else 0.0)
    return statistics


def sample_pairs(labels, count, *, seed=0):
    """Draws positive pairs and negative pairs uniformly at random.

    Pairs are drawn with replacement, so that time and memory depend only on `count` and n.

    Args:
        labels: (n,) or (n, 1) integers of any size.
        count: Number of pairs of each kind; >= 1.
        seed: Integer >= 0; the same seed gives the same pairs.

    Returns:
        Two (count, 2) arrays of row numbers, positive and negative pairs. The two rows of a pair
        are never the same.

    Raises:
        TypeError: If `labels` are not integers.
        ValueError: If they have another shape, no two rows share a class, all rows do, or an option
            is out of range.

    Example:
        >>> positive, negative = sample_pairs(np.array([7, 9, 9]), 2)
        >>> np.sort(positive).tolist()
        [[1, 2], [1, 2]]
        >>> np.sort(negative)[:, 0].tolist()
        [0, 0]
    """
    count = inputs.whole_number(count, "count", at_least=1)
    rng = np.random.default_rng(inputs.whole_number(seed, "seed", at_least=0))
    by_class, sizes = _rows_by_class(inputs.class_ids(labels))
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
    """Equal error rate: where false-match and false-non-match rates meet.

    A pair matches if its score is at or above the threshold. Of the thresholds where either rate
    changes, the one with the smallest difference of the two rates counts; the result is their mean.

    Args:
        positive: (p,) floats, finite: scores of positive pairs, larger for more similar pairs.
        negative: (n,) floats, finite: scores of negative pairs.

    Returns:
        A Python float: 0 if a threshold separates the scores, 0.5 at chance level or if all are
        equal, 1 for perfectly reversed scores.

    Example:
        >>> equal_error_rate([0.9, 0.8, 0.4, 0.7], [0.1, 0.2, 0.3, 0.6])
        0.25
    """
    scores = np.concatenate([positive, negative])
    same = np.arange(len(scores)) < len(positive)
    accepted, found, _ = roc_curve(same, scores, drop_intermediate=False)
    return errors_meet(1 - found, accepted)[0]


def errors_meet(missed, accepted):
    """The mean of the two error rates where they are nearest to each other, and its index.

    Args:
        missed: (n,) floats, shares of the positive pairs rejected.
        accepted: (n,) floats, shares of the negative pairs accepted, at the same thresholds.
    """
    nearest = int(np.argmin(np.abs(missed - accepted)))
    return float((missed[nearest] + accepted[nearest]) / 2), nearest


def _rows_by_class(labels):
    """Numbers of the rows in the order of their classes, and the sizes of these."""
    by_class = np.argsort(labels, kind="stable")
    _, sizes = np.unique(labels, return_counts=True)
    expectation = "`labels` must hold two classes or more, and two rows or more of one of them"
    check(1 < len(sizes) < len(labels), expectation, rows=len(labels), classes=len(sizes))
    return by_class, sizes
