"""Exact ranks of the nearest relevant rows by distance, in tiles that count for both rows."""

import numpy as np

from tfdml.evaluation.ranking import points
from tfdml.evaluation.ranking.search import RelevantRanks, slices_of, true_places

_TILE_ROWS = 256  # queries
_TILE_COLUMNS = 2048  # gallery rows: a tile of float32 fills 2 MB


def ranks_of_nearest(search, depth):
    """Ranks the nearest relevant row of each query among all gallery rows; ties count as errors.

    The ranks are those of `ranks_by_distance`. The distance of the nearest relevant row is found
    first. One product of two rows then counts for both of them as queries, which halves the work
    of queries among themselves. Uses about 24 bytes per number given, plus a few tiles.

    Args:
        search: `Search`.
        depth: (n,) numbers: the largest rank needed for each query; larger ones are missing.

    Yields:
        The `RelevantRanks` of all queries.
    """
    queries, gallery = points.points_of(search)
    rows, columns = queries.nearness_rows(), gallery.nearness_columns()
    nearest = _nearest_distances(search, queries, gallery, rows, columns)
    before = _RowsBefore(queries, gallery, nearest, np.where(search.relevant, depth, 0))
    for some in slices_of(0, len(rows), _TILE_ROWS):
        first = some.start if search.among_themselves else 0
        for others in slices_of(first, len(search.gallery), _TILE_COLUMNS):
            nearness = rows[some] @ columns[:, others]
            shared = search.related(some, others)
            of_classes = nearness[:, shared.start - others.start : shared.stop - others.start]
            of_classes[search.same_class(some, shared)] = -np.inf
            before.add(some, others, nearness)
            if search.among_themselves:
                later = slice(max(some.stop, others.start), others.stop)
                before.add(later, some, nearness[:, later.start - others.start :].T)
    query = np.flatnonzero(before.count < before.depth)
    rank = before.count[query] + 1
    yield RelevantRanks(0, len(search.queries), query, np.ones_like(query), rank)


def _nearest_distances(search, queries, gallery, rows, columns):
    """(n,) float64 squared distances of queries to their nearest relevant rows, 0 without one."""
    nearest = np.where(search.relevant, np.inf, 0.0)
    best = np.full(len(rows), -np.inf)  # lower bound of the nearness of the nearest relevant row
    norms, dim = np.sqrt(gallery.squared_norms), gallery.exact.shape[1]
    for some, others in _relevant_tiles(search):
        nearness = rows[some] @ columns[:, others]
        nearness[~search.is_relevant(some, others)] = -np.inf
        squared, largest = queries.squared_norms[some], nearness.argmax(axis=1)
        certain = nearness[np.arange(len(largest)), largest]
        certain -= points.nearness_error(np.sqrt(squared), norms[others][largest], dim)
        best[some] = np.maximum(best[some], certain)
        asked = np.flatnonzero(best[some] > -np.inf)
        farthest = np.maximum(-2 * best[some][asked], 0)
        low, _ = points.nearness_bounds(squared[asked], farthest, dim)
        query, row = true_places(nearness[asked] >= low[:, None])
        query, row = some.start + asked[query], others.start + row
        distances = points.squared_distances(queries.exact, query, gallery.exact, row)
        np.minimum.at(nearest, query, distances)
    return nearest


def _relevant_tiles(search):
    """Yields slices of queries and gallery rows that cover all pairs of the same class."""
    for some in slices_of(0, len(search.queries), _TILE_ROWS):
        shared = search.related(some, slice(0, len(search.gallery)))
        for others in slices_of(shared.start, shared.stop, _TILE_COLUMNS):
            yield some, others


class _RowsBefore:
    """Numbers of rows of other classes at or nearer than the nearest relevant row of each query.

    They are exact below the depth.
    """

    def __init__(self, queries, gallery, nearest, depth):
        dim = gallery.exact.shape[1]
        self.low, self.high = points.nearness_bounds(queries.squared_norms, nearest, dim)
        self.queries, self.gallery, self.nearest, self.depth = queries, gallery, nearest, depth
        self.count = np.zeros(len(depth), int)

    def add(self, some, others, nearness):
        """Counts a tile: the nearness of slices of queries and gallery rows; -inf is left out."""
        reached = nearness.max(axis=1) >= self.low[some]
        asked = np.flatnonzero(reached & (self.count[some] < self.depth[some]))
        nearness, asked = nearness[asked], some.start + asked
        self.count[asked] += np.count_nonzero(nearness > self.high[asked, None], axis=1)
        below = self.count[asked] < self.depth[asked]
        nearness, asked = nearness[below], asked[below]
        between = (nearness >= self.low[asked, None]) & (nearness <= self.high[asked, None])
        query, row = true_places(between)
        query, row = asked[query], others.start + row
        distances = points.squared_distances(self.queries.exact, query, self.gallery.exact, row)
        np.add.at(self.count, query[distances <= self.nearest[query]], 1)
