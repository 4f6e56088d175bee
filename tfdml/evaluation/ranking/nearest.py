"""Exact ranks of the nearest relevant rows by distance, in tiles; each pair is multiplied once."""

import numpy as np

from tfdml.evaluation.ranking import points
from tfdml.evaluation.ranking.by_distance import points_of, ranks_of_points
from tfdml.evaluation.ranking.search import RelevantRanks, slices_of

_TILE_ROWS = 256  # queries
_TILE_COLUMNS = 2048  # gallery rows: a tile of float32 fills 2 MB


def ranks_of_nearest(search, depth):
    """Ranks the nearest relevant row of each query among all gallery rows; ties count as errors.

    The ranks are those of `ranks_by_distance`, in about half the time: the distance of the nearest
    relevant row is known before the others are counted, so that one product of rows serves both of
    them as queries. Queries for which float32 cannot decide are left to `ranks_of_points`. Uses
    about 20 bytes per number given, plus a few tiles.

    Args:
        search: `Search`.
        depth: (n,) numbers: the largest rank needed for each query; larger ones are missing.

    Yields:
        The `RelevantRanks` of all queries.
    """
    queries, gallery = points_of(search)
    rows, columns = queries.nearness_rows(), gallery.nearness_columns()
    nearest = _nearest_distances(search, queries, gallery, rows, columns)
    depth = np.where(search.relevant, depth, 0)
    before = _Before(queries.squared_norms, nearest, gallery.exact.shape[1], depth)
    for some in slices_of(0, len(rows), _TILE_ROWS):
        first = some.start if search.among_themselves else 0
        for others in slices_of(first, len(search.gallery), _TILE_COLUMNS):
            nearness = rows[some] @ columns[:, others]
            shared = search.related(some, others)
            of_classes = nearness[:, shared.start - others.start : shared.stop - others.start]
            of_classes[search.same_class(some, shared)] = -np.inf
            before.add(some, nearness)
            if search.among_themselves:
                later = slice(max(some.stop, others.start), others.stop)
                before.add(later, nearness[:, later.start - others.start :].T)
    doubtful = np.flatnonzero((before.at_least < depth) & (before.at_least < before.at_most))
    if doubtful.size:
        some = search.of(doubtful)._replace(among_themselves=False)
        own, depth_of_some = queries.of(doubtful), depth[doubtful]
        before.at_least[doubtful] = len(search.gallery)
        for ranks in ranks_of_points(some, own, gallery, depth_of_some, np.ones_like(doubtful)):
            first = ranks.place == 1
            query = doubtful[ranks.first + ranks.query[first]]
            before.at_least[query] = ranks.rank[first] - 1
    query = np.flatnonzero(before.at_least < depth)
    rank = before.at_least[query] + 1
    yield RelevantRanks(0, len(search.queries), query, np.ones_like(query), rank)


def _nearest_distances(search, queries, gallery, rows, columns):
    """(n,) float64 squared distances of queries to their nearest relevant rows, 0 without one."""
    nearest = np.full(len(rows), np.inf)
    best = np.full(len(rows), -np.inf)  # nearness that the nearest has at least before rounding
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
        places = np.flatnonzero(nearness[asked] >= low[:, None])
        query, row = np.divmod(places, nearness.shape[1])  # faster than `nonzero` of both axes
        query, row = some.start + asked[query], others.start + row
        distances = points.squared_distances(queries.exact, query, gallery.exact, row)
        np.minimum.at(nearest, query, distances)
    return np.where(search.relevant, nearest, 0.0)


def _relevant_tiles(search):
    """Tiles, as slices of queries and gallery rows, that together have all rows of one class."""
    for some in slices_of(0, len(search.queries), _TILE_ROWS):
        shared = search.related(some, slice(0, len(search.gallery)))
        for others in slices_of(shared.start, shared.stop, _TILE_COLUMNS):
            yield some, others


class _Before:
    """Bounds on how many rows of other classes are at or nearer than a row, for each query.

    Args:
        squared_norms: (n,) float64, of the queries.
        nearest: (n,) float64 squared distances of the queries to that row.
        dim: Dimensions of the rows.
        depth: (n,) numbers. Counts may stop where they have reached it.
    """

    def __init__(self, squared_norms, nearest, dim, depth):
        self.low, self.high = points.nearness_bounds(squared_norms, nearest, dim)
        self.at_least, self.at_most = (np.zeros(len(depth), int) for _ in range(2))
        self.depth = depth

    def add(self, some, nearness):
        """Adds gallery rows for consecutive queries, a slice; a nearness of -inf does not count."""
        reached = nearness.max(axis=1) >= self.low[some]
        asked = np.flatnonzero(reached & (self.at_least[some] < self.depth[some]))
        nearness, asked = nearness[asked], some.start + asked
        self.at_most[asked] += np.count_nonzero(nearness >= self.low[asked, None], axis=1)
        self.at_least[asked] += np.count_nonzero(nearness > self.high[asked, None], axis=1)
