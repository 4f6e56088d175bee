"""How far the pairs of one class and those of two lie from each other, over all pairs."""

import numpy as np

from tfdml.checks import check
from tfdml.evaluation import inputs

_BLOCK_ROWS = 1024
_BLOCK_COLUMNS = 4096
_NEAR = 1e-8  # share of the largest squared norm below which a product loses too many digits
_NEAR_PAIRS = 4096  # whose difference is taken at once


def distance_statistics(embeddings, labels):
    """Tells the mean and variance of the distances of positive and of negative pairs.

    Over all unordered pairs of different rows, with D the Euclidean distance (not squared):

        lda = (mean of negative D - mean of positive D)**2
              / (variance of positive D + variance of negative D)

    The larger `lda`, the better one threshold tells both kinds of pairs apart; the scale of the
    embeddings does not matter to it. Exact: equal to taking float64 distances of every pair, to
    about 1e-10 of the largest. Cost is one float64 product of all pairs, in blocks; for n x dim
    inputs it takes about 40 * n * dim bytes on top of the blocks.

    Args:
        embeddings: (n, dim) floats, finite; taken as given: not normalised. Published figures are
            of unit rows, with distances from 0 to 2.
        labels: (n,) or (n, 1) integers of any size, one class id per row.

    Returns:
        {"positive_mean", "positive_variance", "negative_mean", "negative_variance", "lda"}, Python
        floats. Variances divide by the number of pairs. Where both are 0, `lda` is infinite, or 0
        if the means are equal too, as those of collapsed embeddings.

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
    embeddings, labels = inputs.embeddings_and_labels(embeddings, labels)
    by_class = np.argsort(labels, kind="stable")
    _, ids, counts = np.unique(labels[by_class], return_inverse=True, return_counts=True)
    check(
        1 < len(counts) < len(ids),
        "`labels` must hold two classes or more, and two rows or more of one of them",
        rows=len(ids),
        classes=len(counts),
    )
    points = _Points(embeddings[by_class])
    positive, negative = _Moments(), _Moments()
    for first, last, stop in _blocks(counts):
        distances = points.distances(first, last, first, last)
        upper = np.triu(np.ones(distances.shape, bool), 1)
        same = ids[first:last, None] == ids[None, first:last]
        positive.add(distances[upper & same])
        negative.add(distances[upper & ~same])
        for kind, begin, end in ((positive, last, stop), (negative, stop, len(ids))):
            for left in range(begin, end, _BLOCK_COLUMNS):
                kind.add(points.distances(first, last, left, min(left + _BLOCK_COLUMNS, end)))
    gap, spread = negative.mean - positive.mean, positive.variance + negative.variance
    return {
        "positive_mean": float(np.ldexp(positive.mean, points.exponent)),
        "positive_variance": float(np.ldexp(positive.variance, 2 * points.exponent)),
        "negative_mean": float(np.ldexp(negative.mean, points.exponent)),
        "negative_variance": float(np.ldexp(negative.variance, 2 * points.exponent)),
        "lda": float(gap**2 / spread) if spread else (np.inf if gap else 0.0),
    }


def _blocks(counts):
    """Yields (first, last, stop) of rows in the order of classes of so many rows each.

    Rows first to last end with a class, and stop = last; or are part of one, which ends at stop.
    """
    edges = np.concatenate([[0], np.cumsum(counts)])
    first = 0
    while first < edges[-1]:
        last = int(edges[np.searchsorted(edges, first + _BLOCK_ROWS, side="right") - 1])
        stop = last
        if last <= first:
            last = first + _BLOCK_ROWS
            stop = int(edges[np.searchsorted(edges, last)])
        yield first, last, stop
        first = last


class _Points:
    """Rows whose distances, times 2**-exponent, are taken in blocks by a product."""

    def __init__(self, embeddings):
        # Powers of two round nothing, and keep squares of huge and tiny numbers in range.
        self.exponent = int(np.frexp(np.abs(embeddings).max())[1])
        rows = np.ldexp(embeddings.astype(np.float64), -self.exponent)
        # Rounding errors grow with the norms; a mean would follow one far row away from the rest.
        self.rows = rows - np.median(rows, axis=0)
        squared_norms = np.einsum("ij,ij->i", self.rows, self.rows)[:, None]
        ones = np.ones_like(squared_norms)
        # |a - b|**2 = -2 a.b + 1 * b.b + a.a * 1 is one product of longer rows.
        self.left = np.concatenate([-2 * self.rows, ones, squared_norms], axis=1)
        self.right = np.concatenate([self.rows, squared_norms, ones], axis=1).T
        self.near = _NEAR * squared_norms.max()

    def distances(self, first, last, left, right):
        """(last - first, right - left) distances of rows first to last to rows left to right."""
        squared = self.left[first:last] @ self.right[:, left:right]
        for some in _pieces(np.argwhere(squared < self.near)):
            difference = self.rows[first + some[:, 0]] - self.rows[left + some[:, 1]]
            squared[some[:, 0], some[:, 1]] = np.einsum("ij,ij->i", difference, difference)
        return np.sqrt(squared, out=squared)


def _pieces(pairs):
    return (pairs[first : first + _NEAR_PAIRS] for first in range(0, len(pairs), _NEAR_PAIRS))


class _Moments:
    """Mean and variance of numbers that come in blocks."""

    def __init__(self):
        self.count = 0
        self.mean = 0.0
        self.squares = 0.0  # sum of squared differences from the mean

    def add(self, values):
        """Adds an array of numbers, which it overwrites."""
        if not values.size:
            return
        # Chan, Golub, LeVeque. Updating formulae for computing sample variances. 1979.
        mean = values.mean()
        values -= mean
        gap, count = mean - self.mean, self.count + values.size
        self.mean += gap * values.size / count
        squares = np.square(values, out=values).sum()
        self.squares += squares + gap**2 * self.count * values.size / count
        self.count = count

    @property
    def variance(self):
        return self.squares / self.count
