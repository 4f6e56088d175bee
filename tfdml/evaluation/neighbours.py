"""The nearest neighbours of every row and their distances."""

import numpy as np

from tfdml.checks import check
from tfdml.evaluation import inputs

_BLOCK_BYTES = 2**25  # of float32 scores held at once
_CHUNK_ROWS = 4096  # exact distances computed at once


def nearest_neighbours(embeddings, k):
    """Finds the K nearest other rows of every row, nearest first.

    Exact: equal to sorting the float64 distances of every pair, with ties in the order of row
    numbers. Cost is one float32 product of all pairs, in blocks; for n x dim inputs it takes about
    24 * n * dim bytes on top of the blocks.

    Args:
        embeddings: (n, dim) floats, finite; taken as given: not normalised.
        k: Neighbours of each row, from 1 to n - 1. The row itself is excluded, by number; its
            duplicates are not.

    Returns:
        (n, k) int64 row numbers.

    Raises:
        TypeError: If `embeddings` are not floats.
        ValueError: If they have another shape, are empty or not finite, or `k` is out of range.

    Example:
        >>> from tfdml.evaluation import nearest_neighbours
        >>> nearest_neighbours(np.array([[0.0], [1.0], [3.0], [5.0]]), 2).tolist()
        [[1, 2], [0, 2], [1, 3], [2, 1]]
    """
    embeddings = inputs.finite_rows(embeddings)
    k = inputs.whole_number(k, "k", at_least=1)
    rows = len(embeddings)
    check(k < rows, "`k` must not exceed the number of other rows", k=k, other_rows=rows - 1)
    exact = _scaled(embeddings.astype(np.float64))
    # Rounding errors grow with the norms. The median, as a single outlier would shift a mean.
    centred = _scaled(exact - np.median(exact, axis=0))
    squared_norms = np.einsum("ij,ij->i", centred, centred)
    # A score is a.b - b.b/2 = (a.a - D**2) / 2: one product if b has b.b/2 as an extra column.
    halves = (-0.5 * squared_norms[:, None]).astype(np.float32)
    centred = centred.astype(np.float32)
    columns = np.concatenate([centred, halves], axis=1).T
    asked = np.concatenate([centred, np.ones((rows, 1), np.float32)], axis=1)
    errors = _rounding_errors(squared_norms, embeddings.shape[1])
    found = np.empty((rows, k), np.int64)
    block = max(1, _BLOCK_BYTES // (4 * rows))
    for first in range(0, rows, block):
        scores = asked[first : first + block] @ columns
        own = np.arange(len(scores))
        scores[own, first + own] = -np.inf
        kth = np.partition(scores, rows - k, axis=1)[:, rows - k]
        lowest = kth - 2 * errors[first : first + block]  # rows of the K may score this low
        for i, query in enumerate(range(first, first + len(scores))):
            found[query] = _nearest(exact, query, np.flatnonzero(scores[i] >= lowest[i]), k)
    return found


def distances_to(embeddings, neighbours):
    """(n, k) float64 Euclidean distances of the rows to those of (n, k) row numbers."""
    distances = np.empty(neighbours.shape)
    block = max(1, _CHUNK_ROWS // max(1, neighbours.shape[1]))
    for first in range(0, len(embeddings), block):
        asked = embeddings[first : first + block, None].astype(np.float64)
        difference = embeddings[neighbours[first : first + block]] - asked
        largest = np.abs(difference).max(axis=2, initial=0)
        scale = np.where(largest, largest, 1)  # keeps squares in range
        shares = np.linalg.norm(difference / scale[..., None], axis=2)
        distances[first : first + block] = shares * scale
    return distances


def _scaled(rows):
    """The rows times the power of two that brings the largest magnitude to about 1."""
    exponent = int(np.frexp(np.abs(rows).max())[1])
    return np.ldexp(rows, -exponent)


def _rounding_errors(squared_norms, dim):
    """(n,) float64 bounds of the rounding error of the float32 scores of each row."""
    # Both factors, the products and their sum, in any order, are rounded dim + 4 times, each by at
    # most 2**-24 of |a||b| + b.b/2; the last term covers products too small for a float32.
    farthest = squared_norms.max() ** 0.5
    return (dim + 8) * 2.0**-24 * (squared_norms**0.5 * farthest + farthest**2 / 2 + 2.0**-100)


def _nearest(rows, query, candidates, k):
    """The k candidates nearest to a row, nearest first; ties in the order of candidates."""
    best, distances = np.empty(0, np.int64), np.empty(0)
    for first in range(0, len(candidates), _CHUNK_ROWS):
        some = candidates[first : first + _CHUNK_ROWS]
        best = np.concatenate([best, some])
        distances = np.concatenate([distances, np.square(rows[some] - rows[query]).sum(axis=1)])
        order = np.argsort(distances, kind="stable")[:k]
        best, distances = best[order], distances[order]
        if len(best) == k and distances[-1] == 0:  # no other can be nearer
            break
    return best
