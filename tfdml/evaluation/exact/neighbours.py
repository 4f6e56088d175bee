"""The nearest neighbours of rows and their distances."""

import functools

import numpy as np

from tfdml.checks import check
from tfdml.evaluation import inputs
from tfdml.evaluation.exact.points import Frame, score_error, squared_distances

_BLOCK_BYTES = 2**25  # of float32 scores held at once
_CHUNK_ROWS = 4096  # exact distances computed before checking whether they suffice


def nearest_neighbours(embeddings, k):
    """Finds the K nearest other rows of every row, nearest first.

    Exact: equal to sorting the float64 distances of every pair, with ties in the order of row
    numbers. Cost is one float32 product of all pairs, in blocks; for n x dim inputs it takes about
    4 * n * dim bytes on top of the blocks.

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
    others = len(embeddings) - 1
    check(k <= others, "`k` must not exceed the number of other rows", k=k, other_rows=others)
    points = Frame.around(embeddings).points(embeddings)
    return nearest_rows(points, points, k, np.arange(len(embeddings)))[0]


def nearest_rows(queries, gallery, k, own=None):
    """The K nearest gallery rows of queries, nearest first; ties in the order of row numbers.

    Args:
        queries: `Points` of n rows.
        gallery: `Points` of m rows in the same frame.
        k: Integer K.
        own: (n,) gallery rows of the queries themselves, which are excluded; or None.

    Returns:
        (n, k) int64 row numbers and (n, k) float64 squared distances: exact where another row is
        almost as far, and elsewhere accurate enough to be in the order of the exact ones.
    """
    columns, asked = gallery.score_columns(), len(queries.exact)
    rows, farthest = len(gallery.exact), np.sqrt(gallery.squared_norms.max())
    # Scores that differ by more than this are in the order of the distances.
    margins = 2 * score_error(np.sqrt(queries.squared_norms), farthest, gallery.exact.shape[1])
    found, distances = np.empty((asked, k), np.int64), np.empty((asked, k))
    block = max(1, _BLOCK_BYTES // (4 * rows))
    buffers = np.empty((2, min(block, asked), rows), np.float32)
    for first in range(0, asked, block):
        some = slice(first, first + block)
        scores, partitioned = buffers[:, : asked - first]
        np.matmul(queries.score_rows(some), columns, out=scores)
        if own is not None:
            scores[np.arange(len(scores)), own[some]] = -np.inf
        partitioned[:] = scores
        partitioned.partition(rows - k, axis=1)
        lowest = (partitioned[:, rows - k] - margins[some]).astype(np.float32)
        for i, query in enumerate(range(first, first + len(scores))):
            candidates = (scores[i] >= lowest[i]).nonzero()[0]  # including all of the K nearest
            near = queries.squared_norms[query] - 2 * scores[i, candidates].astype(np.float64)
            exact = functools.partial(squared_distances, queries.exact, query, gallery.exact)
            nearest = _nearest(candidates, near, 2 * margins[query], exact, k)
            found[query], distances[query] = candidates[nearest], near[nearest]
    return found, distances


def distances_to(embeddings, neighbours):
    """(n, k) float64 Euclidean distances of the rows to those of (n, k) row numbers."""
    frame = Frame.around(embeddings)
    exact = frame.points(embeddings).exact
    asked = np.repeat(np.arange(len(exact)), neighbours.shape[1])
    squared = squared_distances(exact, asked, exact, neighbours.reshape(-1))
    return np.ldexp(np.sqrt(squared), frame.exponent).reshape(neighbours.shape)


def _nearest(rows, distances, margin, exact, k):
    """The indices of the k nearest rows, nearest first; replaces uncertain distances by exact ones.

    Args:
        rows: (t,) ascending gallery rows.
        distances: (t,) float64 estimates of their squared distances, changed in place.
        margin: Distances that differ by more are in the exact order.
        exact: Function of rows that returns their exact distances.
        k: At most t.
    """
    order = distances.argsort()
    ordered = distances[order]
    close = ordered[1:] - ordered[:-1] <= margin
    uncertain = np.zeros(len(rows), bool)
    uncertain[order[1:][close]] = uncertain[order[:-1][close]] = True
    uncertain = uncertain.nonzero()[0]
    distances[uncertain] = np.inf
    for first in range(0, len(uncertain), _CHUNK_ROWS):
        some = uncertain[first : first + _CHUNK_ROWS]
        distances[some] = exact(rows[some])
        if np.count_nonzero(distances == 0) >= k:  # no other can be nearer
            break
    return distances.argsort(kind="stable")[:k]
