"""Samples of positive and negative pairs of rows, and the equal error rate of a score on them."""

import numpy as np

from tfdml.checks import check
from tfdml.evaluation import inputs


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
    labels = inputs.class_ids(labels)
    by_class = np.argsort(labels, kind="stable")
    _, starts, sizes = np.unique(labels[by_class], return_index=True, return_counts=True)
    rows = len(by_class)
    check(
        1 < len(sizes) < rows,
        "`labels` must hold two classes or more, and two rows or more of one of them",
        rows=rows,
        classes=len(sizes),
    )
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
        positive: (p,) floats, scores of positive pairs, larger for more similar pairs.
        negative: (n,) floats, scores of negative pairs.

    Returns:
        A Python float: 0 if a threshold separates the scores, 0.5 at chance level or if all are
        equal, 1 for perfectly reversed scores.

    Raises:
        ValueError: If there are no scores of one kind, or a score is not finite.

    Example:
        >>> equal_error_rate([0.9, 0.8, 0.4, 0.7], [0.1, 0.2, 0.3, 0.6])
        0.25
    """
    positive, negative = (np.asarray(scores, np.float64) for scores in (positive, negative))
    for name, scores in (("positive", positive), ("negative", negative)):
        check(
            scores.ndim == 1 and scores.size,
            f"`{name}` must be scores of shape (n,), n >= 1",
            shape=scores.shape,
        )
        finite = np.isfinite(scores)
        check(
            finite.all(),
            f"`{name}` must be finite",
            scores_not_finite=int(np.count_nonzero(~finite)),
            first=int(np.argmin(finite)),
        )
    positive, negative = np.sort(positive), np.sort(negative)
    thresholds = np.append(np.union1d(positive, negative), np.inf)
    missed = np.searchsorted(positive, thresholds) / len(positive)
    accepted = 1 - np.searchsorted(negative, thresholds) / len(negative)
    return errors_meet(missed, accepted)[0]


def errors_meet(missed, accepted):
    """The mean of the two error rates where they are nearest to each other, and its index.

    Args:
        missed: (n,) floats, shares of the positive pairs rejected, ascending.
        accepted: (n,) floats, shares of the negative pairs accepted, at the same thresholds.
    """
    nearest = int(np.argmin(np.abs(missed - accepted)))
    return float((missed[nearest] + accepted[nearest]) / 2), nearest
