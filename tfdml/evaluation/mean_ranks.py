"""Rank of the mean of a row's own class among the means of all classes."""

from typing import NamedTuple

import numpy as np

from tfdml.checks import check_one_of

_BLOCK_BYTES = 2**25  # of float64 squared distances held at once
_PAIRS = 4096  # differences computed at once

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
    distinct, of_class, counts = np.unique(
        means.astype(np.float64) + 0.0, axis=0, return_inverse=True, return_counts=True
    )
    of_class = of_class.reshape(-1)
    known = np.flatnonzero(own >= 0)
    ranks = MeanRanks(*(np.full(len(rows), value) for value in (np.inf, np.inf, 1.0)))
    search = _Search(distinct, counts, rows)
    size = max(1, _BLOCK_BYTES // (8 * len(distinct)))
    for first in range(0, len(known), size):
        block = known[first : first + size]
        mean_of_row = of_class[own[block]]
        ranks.classes[block], ranks.means[block] = search.before(rows[block], mean_of_row)
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


class _Search:
    """Counts the means before the own one: by a matrix product where certain, else one by one."""

    def __init__(self, means, counts, rows):
        # Scaling by powers of two is exact and keeps squares in range.
        largest = max(np.abs(values).max() for values in (means, rows))
        self.exponent = int(np.frexp(largest)[1])
        self.exact = np.ldexp(means, -self.exponent)
        # Rounding errors grow with the norms, so means far from the origin but close together must
        # be centred: on their median, as a single outlier would shift their mean.
        self.centre = np.median(self.exact, axis=0)
        centred = self.exact - self.centre
        self.columns = centred.T.copy()
        self.squared_norms = np.einsum("ij,ij->i", centred, centred)
        self.weights = np.stack([counts, np.ones_like(counts)], axis=1).astype(np.float64)
        # Each of the product, its terms and the difference that it is compared with rounds less
        # than dim + 16 times.
        self.rounding = 4 * (means.shape[1] + 16) * 2.0**-53

    def before(self, rows, own):
        """(classes, means) at most as far from each row as its mean `own`, which is excluded."""
        exact = np.ldexp(rows.astype(np.float64), -self.exponent)
        centred = exact - self.centre
        squared_norms = np.einsum("ij,ij->i", centred, centred)
        squared = centred @ self.columns
        squared *= -2.0
        squared += self.squared_norms
        squared += squared_norms[:, None]
        limits = self._squared_distances(exact, own)
        squared[np.arange(len(own)), own] = np.inf
        # By the triangle inequality, means of norm above `reach` are farther than the own one, by
        # more than their rounding error.
        norms = np.sqrt(squared_norms)
        reach = norms * (1 + 4 * self.rounding) + np.sqrt(limits)
        errors = self.rounding * (norms + reach) ** 2
        nearer = squared < (limits - errors)[:, None]
        doubtful = squared <= (limits + errors)[:, None]
        doubtful &= ~nearer
        places, candidates = np.nonzero(doubtful)
        for first in range(0, len(places), _PAIRS):
            some = places[first : first + _PAIRS]
            others = candidates[first : first + _PAIRS]
            nearer[some, others] = self._squared_distances(exact[some], others) <= limits[some]
        return (nearer.astype(np.float64) @ self.weights).T

    def _squared_distances(self, rows, means):
        return np.square(rows - self.exact[means]).sum(axis=1)
