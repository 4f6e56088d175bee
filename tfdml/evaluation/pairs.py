"""Pairs of rows, positive and negative: a sample of them, and how well a score tells them apart."""

import numpy as np

from tfdml.checks import check
from tfdml.evaluation import inputs


def sample_pairs(labels, count, *, seed=0):
    """Draws positive and negative pairs at random, each pair of its kind as likely as any other.

    Pairs are drawn with repetition, so that time and memory depend on `count` and n alone.

    Args:
        labels: (n,) or (n, 1) integers of any size.
        count: Pairs of each kind; >= 1.
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
    # A row is drawn by the number of its partners, then one of them: places in the order of
    # classes, behind the row itself or behind its class, round the end.
    mates, others = sizes - 1, rows - sizes
    drawn = rng.choice(len(sizes), count, p=sizes * mates / np.sum(sizes * mates))
    first = rng.integers(0, sizes[drawn])
    second = (first + rng.integers(1, sizes[drawn])) % sizes[drawn]
    positive = np.stack([starts[drawn] + first, starts[drawn] + second], axis=1)
    drawn = rng.choice(len(sizes), count, p=sizes * others / np.sum(sizes * others))
    first = starts[drawn] + rng.integers(0, sizes[drawn])
    second = (starts[drawn] + sizes[drawn] + rng.integers(0, others[drawn])) % rows
    negative = np.stack([first, second], axis=1)
    return by_class[positive], by_class[negative]


def equal_error_rate(positive, negative):
    """Tells how often a threshold errs that errs as often on positive as on negative pairs.

    A pair is taken for positive if its score is at or above the threshold. Of the thresholds where
    either error changes, the one with the nearest two error rates counts, by the mean of the two.

    Args:
        positive: (p,) floats, scores of positive pairs, the larger the more alike.
        negative: (n,) floats, scores of negative pairs.

    Returns:
        A Python float: 0 for scores that a threshold separates, 0.5 where all are equal or chance,
        1 for the reverse.

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
    """The mean of the two errors where they are nearest to each other, and the number of the place.

    Args:
        missed: (n,) floats, share of the positive pairs refused, by thresholds from lenient on.
        accepted: (n,) floats, share of the negative pairs accepted.
    """
    nearest = int(np.argmin(np.abs(missed - accepted)))
    return float((missed[nearest] + accepted[nearest]) / 2), nearest
