"""The nearest neighbours of rows and their distances."""

import numpy as np

from tfdml.checks import check
from tfdml.evaluation import inputs
from tfdml.evaluation.ranking.points import Frame, score_error, squared_distances

_BLOCK_BYTES = 2**25  # of float32 scores held at once
_CHUNK_ROWS = 4096  # exact distances computed before checking whether they suffice


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
        (n, k) int64 row numbers and (n, k) float64 squared distances.
    """
    columns, asked = gallery.score_columns(), queries.score_rows()
    rows, farthest = len(gallery.exact), np.sqrt(gallery.squared_norms.max())
    errors = score_error(np.sqrt(queries.squared_norms), farthest, gallery.exact.shape[1])
    found, distances = np.empty((len(asked), k), np.int64), np.empty((len(asked), k))
    block = max(1, _BLOCK_BYTES // (4 * rows))
    for first in range(0, len(asked), block):
        scores = asked[first : first + block] @ columns
        if own is not None:
            scores[np.arange(len(scores)), own[first : first + block]] = -np.inf
        kth = np.partition(scores, rows - k, axis=1)[:, rows - k]
        lowest = kth - 2 * errors[first : first + block]  # rows of the K may score this low
        for i, query in enumerate(range(first, first + len(scores))):
            candidates = np.flatnonzero(scores[i] >= lowest[i])
            found[query], distances[query] = _nearest(queries, query, gallery, candidates, k)
    return found, distances


def distances_to(embeddings, neighbours):
    """(n, k) float64 Euclidean distances of the rows to those of (n, k) row numbers."""
    frame = Frame.around(embeddings)
    exact = frame.points(embeddings).exact
    asked = np.repeat(np.arange(len(exact)), neighbours.shape[1])
    squared = squared_distances(exact, asked, exact, neighbours.reshape(-1))
    return np.ldexp(np.sqrt(squared), frame.exponent).reshape(neighbours.shape)


def _nearest(queries, query, gallery, candidates, k):
    """The k candidates nearest to a query, nearest first, and their squared distances."""
    best, distances = np.empty(0, np.int64), np.empty(0)
    for first in range(0, len(candidates), _CHUNK_ROWS):
        some = candidates[first : first + _CHUNK_ROWS]
        best = np.concatenate([best, some])
        found = squared_distances(queries.exact, query, gallery.exact, some)
        distances = np.concatenate([distances, found])
        order = np.argsort(distances, kind="stable")[:k]
        best, distances = best[order], distances[order]
        if len(best) == k and distances[-1] == 0:  # no other can be nearer
            break
    return best, distances
