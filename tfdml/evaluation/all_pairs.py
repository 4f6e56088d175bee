"""Distances of all positive and negative pairs of rows, in blocks."""

import numpy as np

from tfdml.checks import check
from tfdml.evaluation import inputs
from tfdml.evaluation.pairs import sample_pairs

_BLOCK_ROWS = 1024
_BLOCK_COLUMNS = 4096
_NEAR = 1e-8  # share of the largest squared norm below which a product loses too many digits
_NEAR_PAIRS = 4096  # differences computed at once


class AllPairs:
    """All unordered pairs of different rows, by their Euclidean distances times 2**-exponent.

    The distances equal those of float64 differences to about 1e-10 of the largest; those of equal
    rows are 0 exactly. The same rows give the same distances each time.

    Args:
        embeddings: (n, dim) floats, finite.
        labels: (n,) or (n, 1) integers of any size.

    Raises:
        TypeError: If `labels` are not integers or `embeddings` not floats.
        ValueError: If the shapes disagree, an input is empty or not finite, no two rows share a
            class, or all do.
    """

    def __init__(self, embeddings, labels):
        embeddings, labels = inputs.embeddings_and_labels(embeddings, labels)
        by_class = np.argsort(labels, kind="stable")
        _, self.ids, self.counts = np.unique(
            labels[by_class], return_inverse=True, return_counts=True
        )
        rows = len(self.ids)
        check(
            1 < len(self.counts) < rows,
            "`labels` must hold two classes or more, and two rows or more of one of them",
            rows=rows,
            classes=len(self.counts),
        )
        self.points = _Points(embeddings[by_class])
        self.exponent = self.points.exponent
        self.positive = int(np.sum(self.counts * (self.counts - 1) // 2))
        self.negative = rows * (rows - 1) // 2 - self.positive

    def visit(self, positive, negative):
        """Calls `positive` or `negative` with the distances of each block of pairs of its kind.

        Distances come as a contiguous array of any shape, which the callable may overwrite.
        """
        rows = len(self.ids)
        for first, last, stop in _blocks(self.counts):
            distances, same = self._pairs_among(first, last)
            positive(distances[same])
            negative(distances[~same])
            del distances, same  # frees the memory of a block
            for kind, begin, end in ((positive, last, stop), (negative, stop, rows)):
                for left in range(begin, end, _BLOCK_COLUMNS):
                    right = min(left + _BLOCK_COLUMNS, end)
                    kind(self.points.distances(first, last, left, right))

    def _pairs_among(self, first, last):
        """Distances of the pairs of rows first to last, and which of them are positive."""
        ids = self.ids[first:last]
        upper = np.triu(np.ones((len(ids), len(ids)), bool), 1)
        distances = self.points.distances(first, last, first, last)[upper]
        return distances, (ids[:, None] == ids[None, :])[upper]

    def sample(self, count):
        """(2 * count,) distances of positive and of negative pairs drawn at random."""
        drawn = np.concatenate(sample_pairs(self.ids, count))
        distances = np.empty(len(drawn))
        for first in range(0, len(drawn), _NEAR_PAIRS):
            a, b = drawn[first : first + _NEAR_PAIRS].T
            difference = self.points.rows[a] - self.points.rows[b]
            distances[first : first + len(a)] = np.linalg.norm(difference, axis=1)
        return distances


def _blocks(counts):
    """Yields (first, last, stop) of blocks of rows in class order, given the class sizes.

    Rows first to last are either whole classes, with stop = last, or part of a class that ends at
    stop.
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
    """Rows whose distances, times 2**-exponent, are computed in blocks by a matrix product."""

    def __init__(self, embeddings):
        # Scaling by powers of two is exact and keeps squares in range.
        self.exponent = int(np.frexp(np.abs(embeddings).max())[1])
        rows = np.ldexp(embeddings.astype(np.float64), -self.exponent)
        # Rounding errors grow with the norms. The median, as an outlier would shift a mean.
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
