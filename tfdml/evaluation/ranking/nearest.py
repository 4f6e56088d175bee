"""Exact ranks of the nearest relevant rows by distance, in tiles that count for both rows."""

import threading
from typing import NamedTuple

import numpy as np

from tfdml.evaluation.ranking import points
from tfdml.evaluation.ranking.search import RelevantRanks, Search, slices_of, true_places
from tfdml.evaluation.ranking.threads import in_threads

_TILE_ROWS = 384  # queries
_TILE_COLUMNS = 1024  # gallery rows: a tile of float32 fills 1.5 MB


def ranks_of_nearest(search, depth):
    """Ranks the nearest relevant row of each query among all gallery rows; ties count as errors.

    The ranks are those of `ranks_by_distance`. The distance of the nearest relevant row is found
    first. One product of two rows then counts for both of them as queries, which halves the work
    of queries among themselves. Uses about 4 bytes per number given, plus a few tiles per thread.

    Args:
        search: `Search`.
        depth: (n,) numbers: the largest rank needed for each query; larger ones are missing.

    Yields:
        The `RelevantRanks` of all queries.
    """
    tiles = _Tiles(search, *points.points_of(search))
    slices = slices_of(0, len(search.queries), _TILE_ROWS)
    nearest = np.concatenate(list(in_threads(tiles.nearest_relevant, slices)))
    before = _RowsBefore(tiles, nearest, np.where(search.relevant, depth, 0))
    for _ in in_threads(before.add, slices):
        pass
    query = np.flatnonzero(before.count < before.depth)
    rank = before.count[query] + 1
    yield RelevantRanks(0, len(search.queries), query, np.ones_like(query), rank)


class _Tiles(NamedTuple):
    """Nearness and distances of a search; a tile is a slice of queries and one of gallery rows."""

    search: Search
    queries: points.Points
    gallery: points.Points

    def nearness(self, some, start, stop):
        """Yields the gallery rows of the tiles from start to stop, and (b, c) float32 nearness."""
        rows, columns = self.queries.nearness_rows(some), self.gallery.nearness_columns()
        for others in slices_of(start, stop, _TILE_COLUMNS):
            yield others, rows @ columns[:, others]

    def distances(self, query, row):
        """(t,) float64 squared distances of queries to gallery rows, both (t,) integers."""
        return points.squared_distances(self.queries.exact, query, self.gallery.exact, row)

    def nearest_relevant(self, some):
        """(b,) squared distances of some queries to their nearest relevant rows, 0 without one."""
        nearest = np.where(self.search.relevant[some], np.inf, 0.0)
        best = np.full(len(nearest), -np.inf)  # lower bounds of the nearness of the nearest rows
        squared, dim = self.queries.squared_norms[some], self.gallery.exact.shape[1]
        of_classes = self.search.related(some, slice(0, len(self.search.gallery)))
        for others, nearness in self.nearness(some, of_classes.start, of_classes.stop):
            nearness[~self.search.is_relevant(some, others)] = -np.inf
            largest = nearness.argmax(axis=1)
            norms = np.sqrt(squared), np.sqrt(self.gallery.squared_norms[others][largest])
            certain = nearness[np.arange(len(largest)), largest]
            best = np.maximum(best, certain - points.nearness_error(*norms, dim))
            asked = np.flatnonzero(best > -np.inf)
            farthest = np.maximum(-2 * best[asked], 0)
            low, _ = points.nearness_bounds(squared[asked], farthest, dim)
            query, row = true_places(nearness[asked] >= low[:, None])
            distances = self.distances(some.start + asked[query], others.start + row)
            np.minimum.at(nearest, asked[query], distances)
        return nearest


class _RowsBefore:
    """Numbers of rows of other classes at or nearer than the nearest relevant row of each query.

    They are exact below the depth. Several threads may add to them.
    """

    def __init__(self, tiles, nearest, depth):
        squared, dim = tiles.queries.squared_norms, tiles.gallery.exact.shape[1]
        self.low, self.high = points.nearness_bounds(squared, nearest, dim)
        self.tiles, self.nearest, self.depth = tiles, nearest, depth
        self.count, self.lock = np.zeros(len(depth), int), threading.Lock()

    def add(self, some):
        """Counts the tiles of some queries, except those counted with the roles exchanged."""
        search = self.tiles.search
        first = some.start if search.among_themselves else 0
        for others, nearness in self.tiles.nearness(some, first, len(search.gallery)):
            search.leave_out_classes(nearness, some, others)
            self._add(some, others, nearness)
            if search.among_themselves:
                later = slice(max(some.stop, others.start), others.stop)
                self._add(later, some, nearness[:, later.start - others.start :].T)

    def _add(self, some, others, nearness):
        """Counts a tile by its nearness; -inf is left out."""
        reached = nearness.max(axis=1) >= self.low[some]
        asked = np.flatnonzero(reached & (self.count[some] < self.depth[some]))
        nearness, asked = nearness[asked], some.start + asked
        count = np.count_nonzero(nearness > self.high[asked, None], axis=1)
        below = np.flatnonzero(self.count[asked] + count < self.depth[asked])
        nearness, unsure = nearness[below], asked[below, None]
        query, row = true_places((nearness >= self.low[unsure]) & (nearness <= self.high[unsure]))
        query = below[query]
        distances = self.tiles.distances(asked[query], others.start + row)
        nearer = query[distances <= self.nearest[asked[query]]]
        count += np.bincount(nearer, minlength=len(asked))
        with self.lock:
            self.count[asked] += count
