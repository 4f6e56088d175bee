"""Rank of the mean of a row's own class among the means of all classes."""

from typing import NamedTuple

import numpy as np

from tfdml.checks import check_one_of
from tfdml.evaluation.exact.points import Frame, score_bounds, squared_distances
from tfdml.evaluation.exact.search import true_places

_BLOCK_BYTES = 2**25  # of scores held at once, counted as float64

EQUAL_MEANS = ("against", "expected", "as_one")


class MeanRanks(NamedTuple):
    """Numbers of means before that of each row's own class; infinity for a class without a mean."""

    classes: np.ndarray  # (n,) classes of other means, at the distance of the own mean or nearer
    means: np.ndarray  # (n,) the same, classes with equal means counted once
    equals: np.ndarray  # (n,) classes that have the own mean, including the own class


def rank_means(rows, means, own):
    """Ranks the mean of each row's class by Euclidean distance, in blocks.

    Exact: equal to comparing the float64 distances of every pair. Ties count as errors: a different
    mean at exactly the distance of the own one ranks before it. Classes with the same mean as the
    own class are counted separately; `hits` decides how they rank.

    Args:
        rows: (n, dim) floats, finite.
        means: (classes, dim) floats, finite.
        own: (n,) integers, the class of each row as a row of `means`; -1 for one without a mean.

    Returns:
        `MeanRanks`.
    """
    means = means.astype(np.float64) + 0.0
    distinct, of_class, counts = np.unique(means, axis=0, return_inverse=True, return_counts=True)
    of_class = of_class.reshape(-1)
    known = np.flatnonzero(own >= 0)
    ranks = MeanRanks(*(np.full(len(rows), value) for value in (np.inf, np.inf, 1.0)))
    frame = Frame.around(distinct, rows)
    gallery = frame.points(distinct)
    columns = gallery.score_columns()
    weights = np.stack([counts, np.ones_like(counts)], axis=1).astype(np.float64)
    size = max(1, _BLOCK_BYTES // (8 * len(distinct)))
    for first in range(0, len(known), size):
        block = known[first : first + size]
        mean_of_row = of_class[own[block]]
        nearer = _nearer(frame.points(rows[block]), gallery, columns, mean_of_row)
        ranks.classes[block], ranks.means[block] = (nearer.astype(np.float64) @ weights).T
        ranks.equals[block] = counts[mean_of_row]
    return ranks


def hits(ranks, k, equal_means="against"):
    """Whether the class of each row is among the K nearest means, or the probability of that.

    Args:
        ranks: `MeanRanks`.
        k: Integer K.
        equal_means: How classes with the same mean as the own class rank: `"against"`, before it;
            `"expected"`, in random order, which yields the probability of a hit; `"as_one"`, all
            together as one of the K.

    Returns:
        (n,) float64 in [0, 1].
    """
    check_one_of(EQUAL_MEANS, equal_means=equal_means)
    if equal_means == "as_one":
        return (ranks.means < k).astype(np.float64)
    if equal_means == "expected":
        return np.clip((k - ranks.classes) / ranks.equals, 0.0, 1.0)
    return (ranks.classes + ranks.equals - 1 < k).astype(np.float64)


def _nearer(queries, gallery, columns, own):
    """(n, means) whether each mean is at most as far as the row's mean `own`, which is excluded."""
    everyone = np.arange(len(own))
    limits = squared_distances(queries.exact, everyone, gallery.exact, own)
    low, high = score_bounds(queries.squared_norms, limits, gallery.exact.shape[1])
    scores = queries.score_rows() @ columns
    scores[everyone, own] = -np.inf
    nearer = scores > high[:, None]
    places, candidates = true_places((scores >= low[:, None]) & ~nearer)
    distances = squared_distances(queries.exact, places, gallery.exact, candidates)
    nearer[places, candidates] = distances <= limits[places]
    return nearer
