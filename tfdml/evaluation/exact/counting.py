"""Counts of the rows that rank before relevant rows, in float32 where certain, else in float64."""

import bisect
import itertools
from typing import NamedTuple

import numpy as np

from tfdml.evaluation.exact import points

_CHUNK_ROWS = 256  # exact distances computed before checking whether they suffice
_FEW = 8  # up to this many relevant rows, counting one by one is faster than a sort
_DENSE = 8  # scores are picked from a row if at most one in this many is needed
_LEAST_GROUP = 8  # scores; smaller groups save no time
_TOP_ROWS = 64  # queries whose largest scores are found at once
_TOP_SCORES = 2**19  # of these queries at most: 2 MB, which stay in the cache


class Bounds(NamedTuple):
    """Score bounds of the relevant rows of a block, sorted by query, then by descending `high`."""

    query: np.ndarray  # (t,) integers, counted from the first query of the block
    distance: np.ndarray  # (t,) float64, squared
    low: np.ndarray  # (t,) float32, as of `score_bounds`
    high: np.ndarray  # (t,) float32

    def of(self, relevant):
        """The bounds of some relevant rows, given as a slice or as integers."""
        return Bounds(*(part[relevant] for part in self))


def counts_in_top(scores, query, low, high, count):
    """Counts the largest scores of each query against the bounds of its relevant rows.

    Args:
        scores: (b, m) float32 scores of the gallery rows; -inf for those of the query's class.
        query: (t,) ascending integers, the queries of the relevant rows.
        low: (t,) float32 bounds of the scores of the relevant rows.
        high: (t,) float32.
        count: The number of largest scores that are counted.

    Returns:
        Two (t,) arrays of integers: the numbers of scores > `high` and of scores >= `low`.
    """
    at_least, at_most = np.empty((2, len(query)), int)
    step = min(_TOP_ROWS, max(1, _TOP_SCORES // scores.shape[1]))
    edges = np.searchsorted(query, np.arange(0, len(scores) + step, step))
    for i, pairs in enumerate(itertools.starmap(slice, itertools.pairwise(edges))):
        some = scores[i * step : (i + 1) * step]
        top = np.ascontiguousarray(_largest(some, count).T)[:, :, None]
        rows = query[pairs] - i * step
        sizes = np.bincount(rows, minlength=len(some))
        places = rows, np.arange(len(rows)) - (np.cumsum(sizes) - sizes)[rows]
        bounds = np.full((2, len(some), sizes.max()), np.inf, np.float32)
        bounds[0][places], bounds[1][places] = low[pairs], high[pairs]
        small = np.min_scalar_type(count)  # of which a processor adds many at once
        at_most[pairs] = (top >= bounds[0]).sum(axis=0, dtype=small)[places]
        at_least[pairs] = (top > bounds[1]).sum(axis=0, dtype=small)[places]
    return at_least, at_most


def _largest(scores, count):
    """(b, count) largest scores of each row, in any order; those of the `count` best groups."""
    size = int(np.sqrt(scores.shape[1] / count))
    if size >= _LEAST_GROUP:
        grouped = scores.shape[1] // size * size
        groups, rest = scores[:, :grouped].reshape(len(scores), size, -1), scores[:, grouped:]
        best = np.argpartition(groups.max(axis=1), -count, axis=1)[:, None, -count:]
        best = np.take_along_axis(groups, best, axis=2).reshape(len(scores), -1)
        scores = np.concatenate([best, rest], axis=1)
    return np.partition(scores, -count, axis=1)[:, -count:]


class Counter(NamedTuple):
    """Counts, for one query at a time, the rows of other classes before its relevant rows."""

    queries: points.Points
    gallery: points.Points

    def before(self, query, scores, relevant, depth):
        """(s,) numbers of rows at or nearer than the first s relevant rows; inexact if >= depth.

        Relevant rows after the first s certainly have `depth` rows before them.

        Args:
            query: Number of the query.
            scores: (m,) float32 scores of the gallery rows; -inf for those of its class.
            relevant: `Bounds` of its relevant rows, at least one.
            depth: The largest number that must be exact, plus 1.
        """
        if len(relevant.query) == 1:
            return np.array([self._before_one(query, scores, relevant, depth)])
        return self._before_several(query, scores, relevant, depth)

    def _before_one(self, query, scores, relevant, depth):
        """`_before_several` for one relevant row; faster, without arrays of one number."""
        low, high = relevant.low[0], relevant.high[0]
        at_most = np.count_nonzero(scores >= low)
        if at_most == 0:
            return 0
        at_least = np.count_nonzero(scores > high)
        if at_least == at_most or at_least >= depth:
            return at_least
        rows = np.flatnonzero((scores >= low) & (scores <= high))
        return self._settled(query, relevant, np.array([at_least]), rows, scores[rows], depth)[0]

    def _before_several(self, query, scores, relevant, depth):
        """(s,) numbers of rows at or nearer than the first s relevant rows, within depth."""
        lowest = relevant.low.min()
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
            at_least[doubtful] = self._settled(query, *unsure, found, scores[places], depth)
        return at_least

    def _settled(self, query, relevant, at_least, rows, scores, depth):
        """(s,) numbers of rows at or nearer than relevant rows, in float64; inexact if >= depth.

        Args:
            query: Number of the query.
            relevant: `Bounds` of (s,) relevant rows of the query.
            at_least: (s,) numbers of rows that score above the high bounds.
            rows: Gallery rows, including all that score between the bounds of a relevant row.
            scores: Scores of these rows.
            depth: As for `before`.
        """
        before = at_least.copy()
        for first in range(0, len(rows), _CHUNK_ROWS):
            some = slice(first, first + _CHUNK_ROWS)
            distances = np.sort(self._distances(query, rows[some]))
            before += np.searchsorted(distances, relevant.distance, side="right")
            # Rows above the high bound are nearer than the relevant row and already counted.
            ordered = np.sort(scores[some])
            before -= len(ordered) - np.searchsorted(ordered, relevant.high, side="right")
            if (before >= depth).all():
                break
        return before

    def _distances(self, query, rows):
        return points.squared_distances(self.queries.exact, query, self.gallery.exact, rows)


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
