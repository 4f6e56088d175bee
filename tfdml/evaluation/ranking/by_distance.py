"""Exact ranks of relevant rows by distance, in blocks of queries, without sorting the gallery."""

import bisect
import itertools
from typing import NamedTuple

import numpy as np

from tfdml.evaluation.ranking import points
from tfdml.evaluation.ranking.search import Search, ranks_of

_BLOCK_BYTES = 2**25  # of float32 scores held at once
_BLOCK_PAIRS = 2**20  # of queries and relevant rows
_CHUNK_ROWS = 256  # exact distances computed before checking whether they suffice
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
    frame = points.Frame.around(search.gallery, search.queries)
    gallery = frame.points(search.gallery)
    queries = gallery if search.among_themselves else frame.points(search.queries)
    columns, rows = gallery.score_columns(), queries.score_rows()
    # Only this many nearest relevant rows can have a rank of at most `depth`.
    wanted = np.minimum(1 if only_nearest else depth, search.relevant).astype(int)
    ranker = _Ranker(search, queries, gallery, depth, wanted)
    largest_class = int((search.stop - search.start).max())
    block = min(_BLOCK_BYTES // (4 * columns.shape[1]), _BLOCK_PAIRS // max(1, largest_class))
    block = max(1, min(block, len(rows)))
    scores = np.empty((block, columns.shape[1]), np.float32)
    for first in range(0, len(rows), block):
        last = min(first + block, len(rows))
        np.matmul(rows[first:last], columns, out=scores[: last - first])
        yield ranker.ranks(first, last, scores)


class _Bounds(NamedTuple):
    """Score bounds of the relevant rows of a block, sorted by query, then by descending `high`."""

    query: np.ndarray  # (t,) integers, counted from the first query of the block
    distance: np.ndarray  # (t,) float64, squared
    low: np.ndarray  # (t,) float32, as of `score_bounds`
    high: np.ndarray  # (t,) float32

    def of(self, relevant):
        """The bounds of some relevant rows, given as a slice or as integers."""
        return _Bounds(*(part[relevant] for part in self))


class _Ranker(NamedTuple):
    """Ranks the queries of a block: float32 scores where they are certain, float64 where not."""

    search: Search
    queries: points.Points
    gallery: points.Points
    depth: np.ndarray
    wanted: np.ndarray  # (n,) number of nearest relevant rows to rank

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
        squared_norms = self.queries.squared_norms[first + query]
        low, high = points.score_bounds(squared_norms, distance, self.gallery.exact.shape[1])
        order = np.lexsort((-high, query))
        return _Bounds(query, distance[order], low[order], high[order])

    def _nearest_relevant(self, first, last, scores):
        """As `Search.pairs`, but only relevant rows that may be among the nearest `wanted` ones."""
        queries = np.arange(first, last)[self.wanted[first:last] > 0]
        search, of_class, best = self.search, [], []
        spans = (self.wanted, search.start, search.stop, search.left_out, search.left_out_stop)
        spans = zip(*(of[queries].tolist() for of in spans), strict=True)
        for query, (wanted, start, stop, left, right) in zip(queries.tolist(), spans, strict=True):
            of = scores[query - first, start:stop]
            of[left - start : right - start] = -np.inf
            of_class.append(of)
            best.append(start + np.argpartition(of, -wanted)[-wanted:])
        sizes = np.array([len(of) for of in best], int)
        query, relevant = np.repeat(queries, sizes), np.concatenate([np.arange(0), *best])
        dim, squared_norms = self.gallery.exact.shape[1], self.queries.squared_norms
        norms = np.sqrt(squared_norms[query]), np.sqrt(self.gallery.squared_norms[relevant])
        # All of these, that is `wanted` relevant rows, have at least this score before rounding.
        certain = scores[query - first, relevant] - points.score_error(*norms, dim)
        certain = np.minimum.reduceat(certain, np.cumsum(sizes) - sizes) if len(sizes) else certain
        farthest = np.maximum(squared_norms[queries] - 2 * certain, 0)
        lowest, _ = points.score_bounds(squared_norms[queries], farthest, dim)
        near = [np.flatnonzero(of >= low) for of, low in zip(of_class, lowest, strict=True)]
        sizes = [len(of) for of in near]
        rows = np.concatenate([np.arange(0), *near]) + np.repeat(self.search.start[queries], sizes)
        return np.repeat(queries - first, sizes), rows

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
        depth, lowest = self.depth[query], relevant.low.min()
        at_most = np.count_nonzero(scores >= lowest)
        if at_most == 0:
            return np.zeros(len(relevant.query), int)
        if at_most * _DENSE > len(scores) and depth < len(scores):
            # Without relevant rows that certainly have `depth` rows before them.
            beyond = bisect.bisect_left(
                relevant.high, True, key=lambda high: np.count_nonzero(scores > high) >= depth
            )
            relevant = relevant.of(slice(0, beyond))
            lowest = relevant.low.min(initial=np.inf)
            at_most = np.count_nonzero(scores >= lowest)
        rows = None
        if at_most * _DENSE <= len(scores):
            rows = np.flatnonzero(scores >= lowest)
            scores = scores[rows]
        count = _count_each if len(relevant.query) <= _FEW else _count_sorted
        at_least, doubtful, places = count(scores, relevant, depth)
        if doubtful.any():
            found = places if rows is None else rows[places]
            unsure = relevant.of(doubtful), at_least[doubtful]
            at_least[doubtful] = self._settled(query, *unsure, found, scores[places])
        return at_least

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
            distances = np.sort(self._distances(query, rows[some]))
            before += np.searchsorted(distances, relevant.distance, side="right")
            # Rows above the high bound are nearer than the relevant row and already counted.
            ordered = np.sort(scores[some])
            before -= len(ordered) - np.searchsorted(ordered, relevant.high, side="right")
            if (before >= self.depth[query]).all():
                break
        return before

    def _distances(self, places, rows):
        """(t,) float64 squared distances of queries, or one, to (t,) gallery rows."""
        return points.squared_distances(self.queries.exact, places, self.gallery.exact, rows)


def _count_each(scores, relevant, depth):
    """Counts scores against the bounds of relevant rows, one by one: for few of them.

    Returns:
        (s,) numbers of scores above `high`; which relevant rows are uncertain within `depth`, as
        other scores lie between their bounds; and the indices of those scores.
    """
    bounds = list(zip(relevant.low, relevant.high, strict=True))
    at_most = np.array([np.count_nonzero(scores >= low) for low, _ in bounds], int)
    at_least = np.array([np.count_nonzero(scores > high) for _, high in bounds], int)
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
    opened, closed = (np.bincount(of[doubtful], minlength=len(order) + 1) for of in (begin, end))
    return at_least, doubtful, order[np.cumsum(opened - closed)[:-1] > 0]
