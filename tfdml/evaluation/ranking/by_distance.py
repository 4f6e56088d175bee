"""Exact ranks of relevant rows by distance, in blocks of queries, without sorting the gallery."""

import itertools
import threading
from typing import NamedTuple

import numpy as np

from tfdml.evaluation.ranking import points
from tfdml.evaluation.ranking.counting import Bounds, Counter, counts_in_top
from tfdml.evaluation.ranking.search import Search, ranks_of, slices_of, true_places
from tfdml.evaluation.ranking.threads import in_threads

_BLOCK_ROWS = 256  # queries that a thread ranks at once
_BLOCK_BYTES = 2**26  # of float32 scores that a thread holds at most
_BLOCK_PAIRS = 2**20  # of queries and relevant rows
_SHALLOW = 128  # up to this many relevant rows and ranks, the largest scores are found at once
_FEW_BETWEEN = 8  # up to this many rows between the bounds of a relevant row are compared at once
_UNSURE_PAIRS = 64  # of queries and relevant rows, whose scores are picked at once


def ranks_by_distance(search, depth):
    """Ranks the relevant rows of each query among all gallery rows; ties count as errors.

    With D[q, j] the Euclidean distance of query q to gallery row j, the number of rows of other
    classes before a relevant row m is

        before[q, m] = number of j of other classes with D[q, j] <= D[q, m]

    and its rank = its place among the relevant rows of q, counted from 1, + before. Equal to
    comparing float64 distances of every pair: float32 scores from a matrix product decide where
    rounding cannot matter, float64 distances elsewhere. Uses about 4 bytes per number given, plus
    a block per thread.

    Args:
        search: `Search`.
        depth: (n,) numbers: the largest rank needed for each query; larger ones may be missing.

    Returns:
        An iterator of the `RelevantRanks` of consecutive queries.
    """
    queries, gallery = points.points_of(search)
    # Only this many nearest relevant rows can have a rank of at most `depth`.
    wanted = np.minimum(depth, search.relevant).astype(int)
    shallow = max(search.relevant.max(), depth.max()) <= _SHALLOW
    columns = gallery.score_columns()
    ranker = _Ranker(search, queries, gallery, depth, wanted, shallow)
    largest_class = int((search.stop - search.start).max())
    most = _BLOCK_BYTES // (4 * columns.shape[1]), _BLOCK_PAIRS // max(1, largest_class)
    block = max(1, min(_BLOCK_ROWS, *most))
    kept = threading.local()  # scores of a thread: memory that is allocated anew takes longer

    def ranks(some):
        if not hasattr(kept, "scores"):
            kept.scores = np.empty((block, columns.shape[1]), np.float32)
        scores = kept.scores[: some.stop - some.start]
        np.matmul(queries.score_rows(some), columns, out=scores)
        return ranker.ranks(some.start, some.stop, scores)

    # Deep ranks are counted query by query in Python, which threads would only delay.
    return (in_threads if shallow else map)(ranks, slices_of(0, len(depth), block))


class _Ranker(NamedTuple):
    """Ranks the queries of a block: float32 scores where they are certain, float64 where not."""

    search: Search
    queries: points.Points
    gallery: points.Points
    depth: np.ndarray
    wanted: np.ndarray  # (n,) number of nearest relevant rows to rank
    shallow: bool  # whether the relevant rows and the depth are few

    def ranks(self, first, last, scores):
        """The `RelevantRanks` of queries first to last; overwrites scores of their classes."""
        depth = self.depth[first:last]
        if self.shallow or (self.wanted == self.search.relevant)[first:last].all():
            query, relevant = self.search.pairs(first, last)
        else:
            query, relevant = self._nearest_relevant(first, last, scores)
        of_relevant = scores[query, relevant]
        block = slice(first, last), slice(0, scores.shape[1])
        self.search.leave_out_classes(scores, *block)
        if self.shallow:
            before = self._count_in_top(first, scores, query, relevant, of_relevant)
        else:
            before = np.full(len(query), -1)
        decided = before >= 0
        bounds = self._bounds(first, query[~decided], relevant[~decided])
        query = np.concatenate([query[decided], bounds.query])
        before = np.concatenate([before[decided], self._count(first, scores, bounds, depth)])
        found = before >= 0
        return ranks_of(first, last, query[found], before[found])

    def _count(self, first, scores, bounds, depth):
        """(t,) numbers of rows before relevant rows, one query at a time; -1 beyond the depth."""
        counter = Counter(self.queries, self.gallery)
        before = np.full(len(bounds.query), -1)
        edges = np.searchsorted(bounds.query, np.arange(len(scores) + 1)).tolist()
        for i, (begin, end) in enumerate(itertools.pairwise(edges)):
            if end > begin:
                relevant = bounds.of(slice(begin, end))
                nearest = counter.before(first + i, scores[i], relevant, depth[i])
                before[begin : begin + len(nearest)] = nearest
        return before

    def _count_in_top(self, first, scores, query, relevant, of_relevant):
        """(t,) numbers of rows before relevant rows; -1 for a query that needs many distances.

        The bounds of a relevant row follow from its own score, one of `of_relevant`.
        """
        dim, squared_norms = self.gallery.exact.shape[1], self.queries.squared_norms[first + query]
        norms = np.sqrt(squared_norms), np.sqrt(self.gallery.squared_norms[relevant])
        error = points.score_error(*norms, dim)
        far, near = (np.maximum(squared_norms - 2 * (of_relevant + e), 0) for e in (-error, error))
        low, _ = points.score_bounds(squared_norms, far, dim)
        _, high = points.score_bounds(squared_norms, near, dim)
        depth = self.depth[first : first + len(scores)]
        # Deep enough to tell whether there are more than a few rows between the bounds.
        count = int(min(depth.max() + _FEW_BETWEEN + 1, scores.shape[1]))
        before, at_most = counts_in_top(scores, query, low, high, count)
        between = np.where(before < depth[query], at_most - before, 0)
        many = np.bincount(query, between > _FEW_BETWEEN, minlength=len(scores)) > 0
        unsure = np.flatnonzero((between > 0) & ~many[query])
        step = min(_UNSURE_PAIRS, len(scores))
        for some in np.split(unsure, range(step, len(unsure), step)):
            of = scores[query[some]]
            pair, row = true_places((of >= low[some, None]) & (of <= high[some, None]))
            asked, nearest = first + query[some], relevant[some]
            nearer = self._distances(asked[pair], row) <= self._distances(asked, nearest)[pair]
            before[some] += np.bincount(pair[nearer], minlength=len(some))
        before[many[query]] = -1
        return before

    def _bounds(self, first, query, relevant):
        distance = self._distances(first + query, relevant)
        squared_norms = self.queries.squared_norms[first + query]
        low, high = points.score_bounds(squared_norms, distance, self.gallery.exact.shape[1])
        order = np.lexsort((-high, query))
        return Bounds(query, distance[order], low[order], high[order])

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

    def _distances(self, places, rows):
        """(t,) float64 squared distances of queries, or one, to (t,) gallery rows."""
        return points.squared_distances(self.queries.exact, places, self.gallery.exact, rows)
