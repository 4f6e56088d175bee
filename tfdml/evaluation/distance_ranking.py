"""Ranks of mates by Euclidean distance: exact, in blocks of queries, without sorting galleries."""

import bisect
import itertools
from typing import NamedTuple

import numpy as np

from tfdml.evaluation.mates import ranks_of

_BLOCK_BYTES = 2**25  # of float32 scores held at once
_BLOCK_PAIRS = 2**20  # of queries and mates
_CHUNK_ROWS = 256  # exact distances computed before looking whether they suffice
_CENTRE_ROWS = 1001  # odd: the median of equal rows is then that row
_FEW = 8  # mates that others are counted against one by one, sooner than by a sort
_DENSE = 8  # scores are picked from a row when at most one in so many is wanted


def ranks_by_distance(search, depth, only_nearest):
    """Yields where the mates of each query stand among all gallery rows, ties against the mates.

    With D[q, j] the Euclidean distance of query q to gallery row j, a mate m has before it

        before[q, m] = number of j of other classes with D[q, j] <= D[q, m]

    and rank = its place among the mates of q, counted from 1, + before. Equal to comparing float64
    distances of every pair: float32 scores of a product decide where their rounding leaves no
    doubt, float64 distances the rest. Memory holds about 16 bytes per number given, and a block.

    Args:
        search: `Search`.
        depth: (n,) numbers: ranks of at most so much are found, larger ones may be left out.
        only_nearest: Whether the nearest mate of a query suffices. Others may then be left out.

    Yields:
        `MateRanks` of consecutive queries.
    """
    queries, gallery = _points_of(search)
    # A score is a.b - b.b/2 = (a.a - D**2) / 2, one product once b carries its last term.
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
    """The same rows twice: as given for exact distances, moved and rounded for fast ones."""

    exact: np.ndarray  # (n, dim) float64, times a power of two
    centred: np.ndarray  # (n, dim) float32, of the same scale, about the middle of the gallery
    squared_norms: np.ndarray  # (n,) float64, of the centred rows before rounding

    def split(self, count):
        head, tail = zip(*((part[:count], part[count:]) for part in self), strict=True)
        return _Points(*head), _Points(*tail)


def _points_of(search):
    """The queries and the gallery, in one scale."""
    if search.among_themselves:
        points = _points(search.gallery)
        return points, points
    both = _points(np.concatenate([search.gallery, search.queries]))
    gallery, queries = both.split(len(search.gallery))
    return queries, gallery


def _points(embeddings):
    # Powers of two change no comparison, but keep squares of huge and tiny numbers in range.
    exact = embeddings.astype(np.float64)
    exact *= _scale(exact)
    # Rounding errors grow with the norms, so rows that lie far off and close together need a centre
    # of their own. A median, since a mean would follow one far row away from all the others.
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
    """Mates of the queries of a block; in the order of queries, then of falling `high`.

    Rows of other classes score above `high` only if they are nearer than the mate, and below `low`
    only if they are farther.
    """

    query: np.ndarray  # (t,) integers, counted from the first of the block
    distance: np.ndarray  # (t,) float64, squared
    low: np.ndarray  # (t,) float32
    high: np.ndarray  # (t,) float32

    def of(self, mates):
        """The bounds of some mates, given as a slice or as integers."""
        return _Bounds(*(part[mates] for part in self))


class _Ranker:
    """Ranks the queries of a block: float32 scores where they are certain, float64 where not."""

    def __init__(self, search, queries, gallery, depth, only_nearest):
        self.search = search
        self.queries = queries
        self.gallery = gallery
        self.norms = np.sqrt(queries.squared_norms), np.sqrt(gallery.squared_norms)
        self.depth = depth
        # No mate but the first so many can have a rank of at most `depth`.
        self.wanted = np.minimum(1 if only_nearest else depth, search.mates).astype(int)
        # Rounding both factors, the products and their sum in any order: dim + 4 roundings, each
        # at most 2**-24 of |a||b| + b.b/2. The rest covers the rounding of bounds.
        self.rounding = (gallery.exact.shape[1] + 8) * 2.0**-24

    def ranks(self, first, last, scores):
        """The `MateRanks` of queries first to last; overwrites scores of their classes."""
        bounds = self._bounds(first, last, scores)
        for i in range(last - first):
            scores[i, self.search.start[first + i] : self.search.stop[first + i]] = -np.inf
        before = np.full(len(bounds.query), -1)
        edges = np.searchsorted(bounds.query, np.arange(last - first + 1)).tolist()
        for i, (begin, end) in enumerate(itertools.pairwise(edges)):
            mates = bounds.of(slice(begin, end))
            if end == begin + 1:
                before[begin] = self._before_one(first + i, scores[i], mates)
            elif end > begin:
                nearest = self._before_several(first + i, scores[i], mates)
                before[begin : begin + len(nearest)] = nearest
        found = before >= 0
        return ranks_of(first, last, bounds.query[found], before[found])

    def _bounds(self, first, last, scores):
        if (self.wanted == self.search.mates)[first:last].all():
            query, mate = self.search.pairs(first, last)
        else:
            query, mate = self._nearest_mates(first, last, scores)
        distance = self._distances(first + query, mate)
        norms, squared_norms = (
            of[first:last][query] for of in (self.norms[0], self.queries.squared_norms)
        )
        score = (squared_norms - distance) / 2
        # Rows of norm above `reach` are farther than the mate by the triangle inequality, and by
        # more than their larger rounding error; all others have at most that of `reach`.
        reach = norms * (1 + 4 * self.rounding) + np.sqrt(distance)
        error = self._error(norms, reach)
        low, high = (score - error).astype(np.float32), (score + error).astype(np.float32)
        order = np.lexsort((-high, query))
        return _Bounds(query, distance[order], low[order], high[order])

    def _nearest_mates(self, first, last, scores):
        """As `Search.pairs`, but of the mates that may be among the nearest `wanted` ones."""
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
        query, mate = np.repeat(queries, sizes), np.concatenate([np.arange(0), *best])
        # All of these, so `wanted` mates, have at least this score before rounding.
        certain = scores[query - first, mate] - self._error(
            self.norms[0][query], self.norms[1][mate]
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
        """What rounding may add to the scores of rows of so large norms, or take from them."""
        # The last term stands for products too small for a float32.
        return self.rounding * (norms * others + others * others / 2 + 2.0**-100)

    def _before_one(self, query, scores, mate):
        """`_before_several` of one mate, for speed: without arrays of one number."""
        low, high = mate.low[0], mate.high[0]
        at_most = np.count_nonzero(scores >= low)
        if at_most == 0:
            return 0
        at_least = np.count_nonzero(scores > high)
        if at_least == at_most or at_least >= self.depth[query]:
            return at_least
        rows = np.flatnonzero((scores >= low) & (scores <= high))
        return self._settled(query, mate, np.array([at_least]), rows, scores[rows])[0]

    def _before_several(self, query, scores, mates):
        """(s,) numbers of rows at or nearer than the first s mates; all others lie beyond depth."""
        lowest = mates.low.min()
        at_most = np.count_nonzero(scores >= lowest)
        if at_most == 0:
            return np.zeros(len(mates.query), int)
        if at_most * _DENSE > len(scores) and self.depth[query] < len(scores):
            mates = self._within_depth(query, scores, mates)
            if len(mates.query) == 0:
                return np.zeros(0, int)
            lowest = mates.low.min()
            at_most = np.count_nonzero(scores >= lowest)
        rows = None
        if at_most * _DENSE <= len(scores):
            rows = np.flatnonzero(scores >= lowest)
            scores = scores[rows]
        count = _count_each if len(mates.query) <= _FEW else _count_sorted
        at_least, doubtful, places = count(scores, mates, self.depth[query])
        if doubtful.any():
            found = places if rows is None else rows[places]
            at_least[doubtful] = self._settled(
                query, mates.of(doubtful), at_least[doubtful], found, scores[places]
            )
        return at_least

    def _within_depth(self, query, scores, mates):
        """The first mates, without those that certainly have `depth` rows before them."""
        depth = self.depth[query]
        kept = bisect.bisect_left(
            mates.high, True, key=lambda high: np.count_nonzero(scores > high) >= depth
        )
        return mates.of(slice(0, kept))

    def _settled(self, query, mates, at_least, rows, scores):
        """How many rows are at or nearer than mates, by float64; any numbers >= depth beyond it.

        Args:
            query: In the order of the search.
            mates: `_Bounds` of (s,) mates of the query.
            at_least: (s,) numbers of rows that score above the high bounds.
            rows: Gallery rows, among them all that score between the bounds of a mate.
            scores: Of these rows.
        """
        before = at_least.copy()
        for first in range(0, len(rows), _CHUNK_ROWS):
            some = slice(first, first + _CHUNK_ROWS)
            nearest = np.sort(self._distances(query, rows[some]))
            before += np.searchsorted(nearest, mates.distance, side="right")
            # A row above the high bound of a mate has been counted, and is nearer than the mate.
            ordered = np.sort(scores[some])
            before -= len(ordered) - np.searchsorted(ordered, mates.high, side="right")
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
    """Where the `count` largest scores are."""
    if count == 1:
        return np.array([scores.argmax()])
    return np.argpartition(scores, -count)[-count:]


def _count_each(scores, mates, depth):
    """Counts scores against the bounds of mates, one after the other: for few of them.

    Returns:
        (s,) numbers of scores above `high`; which of the mates are in doubt within `depth`, as
        other scores lie between their bounds; and the places of those scores.
    """
    bounds = list(zip(mates.low, mates.high, strict=True))
    at_most = np.array([np.count_nonzero(scores >= low) for low, _ in bounds])
    at_least = np.array([np.count_nonzero(scores > high) for _, high in bounds])
    doubtful = (at_least < at_most) & (at_least < depth)
    between = np.zeros(len(scores), bool)
    for i in np.flatnonzero(doubtful):
        between |= (scores >= bounds[i][0]) & (scores <= bounds[i][1])
    return at_least, doubtful, np.flatnonzero(between) if doubtful.any() else []


def _count_sorted(scores, mates, depth):
    """`_count_each` by a sort: for many mates."""
    order = np.argsort(scores)
    ordered = scores[order]
    begin = np.searchsorted(ordered, mates.low, side="left")
    end = np.searchsorted(ordered, mates.high, side="right")
    at_least = len(scores) - end
    doubtful = (begin < end) & (at_least < depth)
    opened, closed = (
        np.bincount(of[doubtful], minlength=len(scores) + 1)[:-1] for of in (begin, end)
    )
    return at_least, doubtful, order[np.cumsum(opened - closed) > 0]
