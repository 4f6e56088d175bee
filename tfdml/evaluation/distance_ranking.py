"""Exact ranks of relevant rows by distance, in blocks of queries, without sorting the gallery."""

import bisect
import itertools
from typing import NamedTuple

import numpy as np

from tfdml.evaluation.mates import ranks_of

_BLOCK_BYTES = 2**25  # of float32 scores held at once
_BLOCK_PAIRS = 2**20  # of queries and relevant rows
_CHUNK_ROWS = 256  # exact distances computed before checking whether they suffice
_CENTRE_ROWS = 1001  # odd: the median of equal rows is then that row
_FEW = 8  # up to this many relevant rows, counting one by one is faster than a sort
_DENSE = 8  # scores are picked from a row if at most one in this many is needed


def ranks_by_distance(search, depth, only_nearest):
    """Ranks the relevant rows of each query among all gallery rows; ties count as errors.

    With D[q, j] the Euclidean distance of query q to gallery row j, the number of rows of other
    classes before a relevant row m is

        before[q, m] = number of j of other classes with D[q, j] <= D[q, m]

    and its rank = its place among the relevant rows of q, counted from 1, + before. Equal to
    comparing float64 distances of every pair: float32 scores from a matrix product decide where
    rounding cannot matter, float64 distances elsewhere. Uses about 16 bytes per number given, plus
    a block.

    Args:
        search: `Search`.
        depth: (n,) numbers: the largest rank needed for each query; larger ones may be missing.
        only_nearest: Whether the nearest relevant row suffices. Others may then be missing.

    Yields:
        `RelevantRanks` of consecutive queries.
    """
    queries, gallery = _points_of(search)
    # A score is a.b - b.b/2 = (a.a - D**2) / 2: one product if b has b.b/2 as an extra column.
    halves = (-0.5 * gallery.squared_norms[:, None]).astype(np.float32)
    columns = np.concatenate([gallery.centred, halves], axis=1).T
    ones = np.ones((len(queries.exact), 1), np.float32)
    rows = np.concatenate([queries.centred, ones], axis=1)
    ranker = _Ranker(search, queries, gallery, depth, only_nearest)
    largest_class = int((search.stop - search.start).max())
    block = min(_BLOCK_BYTES // (4 * columns.shape[1]), _BLOCK_PAIRS // max(1, largest_class))
    block = max(1, min(block, len(rows)))
    scores = np.empty((block, columns.shape[1]), np.float32)
    for first in range(0, len(rows), block):
        last = min(first + block, len(rows))
        np.matmul(rows[first:last], columns, out=scores[: last - first])
        yield ranker.ranks(first, last, scores)


class _Points(NamedTuple):
    """The same rows twice: as given for exact distances, centred and rounded for fast ones."""

    exact: np.ndarray  # (n, dim) float64, times a power of two
    centred: np.ndarray  # (n, dim) float32, same scale, centred on the gallery
    squared_norms: np.ndarray  # (n,) float64, of the centred rows before rounding

    def split(self, count):
        head, tail = zip(*((part[:count], part[count:]) for part in self), strict=True)
        return _Points(*head), _Points(*tail)


def _points_of(search):
    """The queries and the gallery, on one scale."""
    if search.among_themselves:
        points = _points(search.gallery)
        return points, points
    both = _points(np.concatenate([search.gallery, search.queries]))
    gallery, queries = both.split(len(search.gallery))
    return queries, gallery


def _points(embeddings):
    # Scaling by powers of two changes no comparison and keeps squares in range.
    exact = embeddings.astype(np.float64)
    exact *= _scale(exact)
    # Rounding errors grow with the norms, so rows far from the origin but close together must be
    # centred: on their median, as a single outlier would shift the mean.
    sample = exact[:: max(1, len(exact) // _CENTRE_ROWS)][:_CENTRE_ROWS]
    sample = sample[: len(sample) - (len(sample) + 1) % 2]
    centred = exact - np.median(sample, axis=0)
    scale = _scale(centred)
    exact *= scale
    centred *= scale
    squared_norms = np.einsum("ij,ij->i", centred, centred)
    return _Points(exact, centred.astype(np.float32), squared_norms)


def _scale(values):
    """The power of two that brings the largest magnitude to about 1."""
    largest = max(values.max(), -values.min())
    exponent = int(np.frexp(largest)[1])
    return 2.0 ** -min(max(exponent, -1000), 1000)


class _Bounds(NamedTuple):
    """Score bounds of the relevant rows of a block, sorted by query, then by descending `high`.

    Rows of other classes score above `high` only if they are nearer than the relevant row, and
    below `low` only if they are farther.
    """

    query: np.ndarray  # (t,) integers, counted from the first query of the block
    distance: np.ndarray  # (t,) float64, squared
    low: np.ndarray  # (t,) float32
    high: np.ndarray  # (t,) float32

    def of(self, relevant):
        """The bounds of some relevant rows, given as a slice or as integers."""
        return _Bounds(*(part[relevant] for part in self))


class _Ranker:
    """Ranks the queries of a block: float32 scores where they are certain, float64 where not."""

    def __init__(self, search, queries, gallery, depth, only_nearest):
        self.search = search
        self.queries = queries
        self.gallery = gallery
        self.norms = np.sqrt(queries.squared_norms), np.sqrt(gallery.squared_norms)
        self.depth = depth
        # Only this many nearest relevant rows can have a rank of at most `depth`.
        self.wanted = np.minimum(1 if only_nearest else depth, search.relevant).astype(int)
        # Both factors, the products and their sum, in any order, are rounded dim + 4 times, each
        # by at most 2**-24 of |a||b| + b.b/2. The rest covers the rounding of bounds.
        self.rounding = (gallery.exact.shape[1] + 8) * 2.0**-24

    def ranks(self, first, last, scores):
        """The `RelevantRanks` of queries first to last; overwrites scores of their classes."""
        bounds = self._bounds(first, last, scores)
        for i in range(last - first):
            scores[i, self.search.start[first + i] : self.search.stop[first + i]] = -np.inf
        before = np.full(len(bounds.query), -1)
        edges = np.searchsorted(bounds.query, np.arange(last - first + 1)).tolist()
        for i, (begin, end) in enumerate(itertools.pairwise(edges)):
            relevant = bounds.of(slice(begin, end))
            if end == begin + 1:
                before[begin] = self._before_one(first + i, scores[i], relevant)
            elif end > begin:
                nearest = self._before_several(first + i, scores[i], relevant)
                before[begin : begin + len(nearest)] = nearest
        found = before >= 0
        return ranks_of(first, last, bounds.query[found], before[found])

    def _bounds(self, first, last, scores):
        if (self.wanted == self.search.relevant)[first:last].all():
            query, relevant = self.search.pairs(first, last)
        else:
            query, relevant = self._nearest_relevant(first, last, scores)
        distance = self._distances(first + query, relevant)
        norms, squared_norms = (
            of[first:last][query] for of in (self.norms[0], self.queries.squared_norms)
        )
        score = (squared_norms - distance) / 2
        # By the triangle inequality, rows of norm above `reach` are farther than the relevant row,
        # by more than their rounding error; that of all others is at most the error at `reach`.
        reach = norms * (1 + 4 * self.rounding) + np.sqrt(distance)
        error = self._error(norms, reach)
        low, high = (score - error).astype(np.float32), (score + error).astype(np.float32)
        order = np.lexsort((-high, query))
        return _Bounds(query, distance[order], low[order], high[order])

    def _nearest_relevant(self, first, last, scores):
        """As `Search.pairs`, but only relevant rows that may be among the nearest `wanted` ones."""
        queries = np.arange(first, last)[self.wanted[first:last] > 0]
        starts, stops = self.search.start[queries].tolist(), self.search.stop[queries].tolist()
        of_class = [
            scores[query, start:stop]
            for query, start, stop in zip(queries - first, starts, stops, strict=True)
        ]
        best = []
        for query, of, start in zip(queries, of_class, starts, strict=True):
            left_out, left_out_stop = self.search.left_out[query], self.search.left_out_stop[query]
            of[left_out - start : left_out_stop - start] = -np.inf
            best.append(start + _largest(of, int(self.wanted[query])))
        sizes = np.array([len(of) for of in best], int)
        query, relevant = np.repeat(queries, sizes), np.concatenate([np.arange(0), *best])
        # All of these, that is `wanted` relevant rows, have at least this score before rounding.
        certain = scores[query - first, relevant] - self._error(
            self.norms[0][query], self.norms[1][relevant]
        )
        certain = np.minimum.reduceat(certain, np.cumsum(sizes) - sizes) if len(sizes) else certain
        norms = self.norms[0][queries]
        farthest = np.sqrt(np.maximum(self.queries.squared_norms[queries] - 2 * certain, 0))
        error = self._error(norms, norms * (1 + 4 * self.rounding) + farthest)
        bounds = (certain - error).astype(np.float32)
        near = [np.flatnonzero(of >= bound) for of, bound in zip(of_class, bounds, strict=True)]
        sizes = [len(of) for of in near]
        rows = np.concatenate([np.arange(0), *near]) + np.repeat(np.array(starts, int), sizes)
        return np.repeat(queries - first, sizes), rows

    def _error(self, norms, others):
        """Largest rounding error of the scores of rows with these norms."""
        # The last term covers products too small for a float32.
        return self.rounding * (norms * others + others * others / 2 + 2.0**-100)

    def _before_one(self, query, scores, relevant):
        """`_before_several` for one relevant row; faster, without arrays of one number."""
        low, high = relevant.low[0], relevant.high[0]
        at_most = np.count_nonzero(scores >= low)
        if at_most == 0:
            return 0
        at_least = np.count_nonzero(scores > high)
        if at_least == at_most or at_least >= self.depth[query]:
            return at_least
        rows = np.flatnonzero((scores >= low) & (scores <= high))
        return self._settled(query, relevant, np.array([at_least]), rows, scores[rows])[0]

    def _before_several(self, query, scores, relevant):
        """(s,) numbers of rows at or nearer than the first s relevant rows, within depth."""
        lowest = relevant.low.min()
        at_most = np.count_nonzero(scores >= lowest)
        if at_most == 0:
            return np.zeros(len(relevant.query), int)
        if at_most * _DENSE > len(scores) and self.depth[query] < len(scores):
            relevant = self._within_depth(query, scores, relevant)
            if len(relevant.query) == 0:
                return np.zeros(0, int)
            lowest = relevant.low.min()
            at_most = np.count_nonzero(scores >= lowest)
        rows = None
        if at_most * _DENSE <= len(scores):
            rows = np.flatnonzero(scores >= lowest)
            scores = scores[rows]
        count = _count_each if len(relevant.query) <= _FEW else _count_sorted
        at_least, doubtful, places = count(scores, relevant, self.depth[query])
        if doubtful.any():
            found = places if rows is None else rows[places]
            at_least[doubtful] = self._settled(
                query, relevant.of(doubtful), at_least[doubtful], found, scores[places]
            )
        return at_least

    def _within_depth(self, query, scores, relevant):
        """The first relevant rows, without those that certainly have `depth` rows before them."""
        depth = self.depth[query]
        kept = bisect.bisect_left(
            relevant.high, True, key=lambda high: np.count_nonzero(scores > high) >= depth
        )
        return relevant.of(slice(0, kept))

    def _settled(self, query, relevant, at_least, rows, scores):
        """(s,) numbers of rows at or nearer than relevant rows, in float64; inexact if >= depth.

        Args:
            query: Number of the query in the order of the search.
            relevant: `_Bounds` of (s,) relevant rows of the query.
            at_least: (s,) numbers of rows that score above the high bounds.
            rows: Gallery rows, including all that score between the bounds of a relevant row.
            scores: Scores of these rows.
        """
        before = at_least.copy()
        for first in range(0, len(rows), _CHUNK_ROWS):
            some = slice(first, first + _CHUNK_ROWS)
            nearest = np.sort(self._distances(query, rows[some]))
            before += np.searchsorted(nearest, relevant.distance, side="right")
            # Rows above the high bound are nearer than the relevant row and already counted.
            ordered = np.sort(scores[some])
            before -= len(ordered) - np.searchsorted(ordered, relevant.high, side="right")
            if (before >= self.depth[query]).all():
                break
        return before

    def _distances(self, queries, rows):
        """(t,) float64 squared distances of (t,) queries, or of one, to (t,) gallery rows."""
        distances = np.empty(len(rows))
        for first in range(0, len(rows), _CHUNK_ROWS):
            some = slice(first, first + _CHUNK_ROWS)
            difference = self.gallery.exact[rows[some]]
            difference -= self.queries.exact[queries if np.ndim(queries) == 0 else queries[some]]
            np.square(difference, out=difference).sum(axis=1, out=distances[some])
        return distances


def _largest(scores, count):
    """Indices of the `count` largest scores."""
    if count == 1:
        return np.array([scores.argmax()])
    return np.argpartition(scores, -count)[-count:]


def _count_each(scores, relevant, depth):
    """Counts scores against the bounds of relevant rows, one by one: for few of them.

    Returns:
        (s,) numbers of scores above `high`; which relevant rows are uncertain within `depth`, as
        other scores lie between their bounds; and the indices of those scores.
    """
    bounds = list(zip(relevant.low, relevant.high, strict=True))
    at_most = np.array([np.count_nonzero(scores >= low) for low, _ in bounds])
    at_least = np.array([np.count_nonzero(scores > high) for _, high in bounds])
    doubtful = (at_least < at_most) & (at_least < depth)
    between = np.zeros(len(scores), bool)
    for i in np.flatnonzero(doubtful):
        between |= (scores >= bounds[i][0]) & (scores <= bounds[i][1])
    return at_least, doubtful, np.flatnonzero(between) if doubtful.any() else []


def _count_sorted(scores, relevant, depth):
    """`_count_each` by a sort: for many relevant rows."""
    order = np.argsort(scores)
    ordered = scores[order]
    begin = np.searchsorted(ordered, relevant.low, side="left")
    end = np.searchsorted(ordered, relevant.high, side="right")
    at_least = len(scores) - end
    doubtful = (begin < end) & (at_least < depth)
    opened, closed = (
        np.bincount(of[doubtful], minlength=len(scores) + 1)[:-1] for of in (begin, end)
    )
    return at_least, doubtful, order[np.cumsum(opened - closed) > 0]
