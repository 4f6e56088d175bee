"""Ranks of relevant rows, nearest rows and distances of pairs, by one pass over all pairs."""

import threading
from typing import Any, NamedTuple

import numpy as np

from tfdml.checks import check
from tfdml.evaluation import inputs
from tfdml.evaluation.pair_distances import DistanceCounter, Histogram
from tfdml.evaluation.tiles import DistanceTiles, SimilarityTiles, leave_out, slices_of

_EXTRA = 8  # candidates beyond the nearest rows, whose order float32 may confuse


class RelevantRanks(NamedTuple):
    """Ranks of relevant rows up to the depth that was asked for, sorted by query, then by place."""

    query: np.ndarray  # (t,) int32
    place: np.ndarray  # (t,) int32, 1 for the nearest relevant row
    rank: np.ndarray  # (t,) int32


class Ranking(NamedTuple):
    """What `rank` finds; queries in the order given."""

    relevant: np.ndarray  # (n,) number of relevant rows of each query
    relevant_ranks: RelevantRanks
    nearest: Any  # (n, k) int64 gallery rows, nearest first
    distances: Any  # (n, k) float64, theirs; their scores with a similarity
    histogram: Histogram | None


def rank(
    embeddings,
    labels,
    gallery_embeddings=None,
    gallery_labels=None,
    *,
    similarity=None,
    nearest=8,
    depth=None,
    first_only=False,
    histogram=False,
    groups=None,
    gallery_groups=None,
    own=None,
):
    """The `Ranking` of the gallery rows for each query, of which retrieval scores are readings.

    The relevant rows of query q are the gallery rows of its class without q itself. With D[q, j]
    the Euclidean distance, the i-th nearest relevant row m has rank

        p[i] = i + number of j of other classes with D[q, j]**2 <= D[q, m]**2 + tolerance
        tolerance = 2**-23 * (2 * |q| + D[q, m])**2

    with |q| the norm of q after the rows are centred on the median of a sample. So ties, and
    distances that products in float32 cannot tell apart, count against the query. Rows are scaled
    by a power of two: neither tiny nor huge norms lose digits.

    One product of all pairs in tiles, in threads, fills everything, after another of the rows of
    each class. Besides 4 bytes per number given it takes 12 bytes per relevant row, and some tiles
    per thread. Other arguments and errors are those of `retrieval_scores`.

    Args:
        gallery_embeddings: (m, dim) floats searched in, in memory or as a memory map; or a list or
            other iterable, read twice, of blocks (m_i, dim) such as shards. Default: the queries.
        similarity: As for `retrieval_scores`; its scores replace -D, without a tolerance.
        nearest: Number of nearest rows to find per query, at most those that there are. Rows at the
            distance of the last may be left out.
        depth: Largest rank needed, for all queries or (n,) for each; 0 ranks no relevant rows.
            Default: no limit.
        first_only: Whether only the nearest relevant row of each query is ranked.
        histogram: Whether the distances of all pairs of queries are counted, from products in
            float64. Without a gallery, groups and similarity.
        own: (n,) or (n, w) gallery rows that are the queries themselves, which are excluded; -1 for
            none.

    Example:
        >>> line, labels = np.array([[0.0], [1.0], [3.0], [3.5]]), np.array([0, 1, 0, 1])
        >>> ranking = rank(line, labels, nearest=1)
        >>> ranking.relevant_ranks.rank.tolist(), ranking.nearest[:, 0].tolist()
        ([2, 3, 3, 2], [1, 0, 3, 2])
    """
    kind = {"groups": groups, "gallery_groups": gallery_groups, "own": own}
    search = inputs.search_of(embeddings, labels, gallery_embeddings, gallery_labels, **kind)
    plain = search.among_themselves and groups is None and similarity is None
    check(plain or not histogram, "`histogram` counts the pairs of queries among themselves")
    inputs.check_callable_or_none(similarity=similarity)
    nearest = inputs.whole_number(nearest, "nearest", at_least=0)
    depth = np.broadcast_to(np.inf if depth is None else depth, len(search.queries))[search.kept]
    return ranking_of(search, similarity, nearest, depth, first_only, histogram)


def nearest_neighbours(embeddings, k):
    """Finds the K nearest other rows of every row: (n, k) int64 row numbers, nearest first.

    Distances are those of float64 differences, with ties in the order of row numbers; of several
    rows that float32 cannot tell from the K-th, any may be found. Errors: as for `class_means`.

    Args:
        embeddings: (n, dim) floats, finite; taken as given: not normalised.
        k: Integer from 1 to n - 1.
    """
    embeddings = inputs.finite_rows(embeddings)
    k = inputs.whole_number(k, "k", at_least=1)
    others = len(embeddings) - 1
    check(k <= others, "`k` must not exceed the number of other rows", k=k, other_rows=others)
    return rank(embeddings, np.arange(len(embeddings)), nearest=k, depth=0).nearest


def ranking_of(
    search, similarity=None, nearest=0, depth: Any = np.inf, first_only=False, histogram=False
):
    """The `Ranking` of a `Search`; arguments as for `rank`, checked; (q,) depths by key."""
    relevant, nearest = search.relevant, min(nearest, search.most)
    depth = np.broadcast_to(depth, len(search.kept)).astype(float, copy=False)
    tiles: Any = SimilarityTiles(search, similarity) if similarity else None
    tiles = tiles or DistanceTiles(search, np.float64 if histogram else np.float32)
    sizes = np.minimum(relevant, 1) if first_only else relevant
    slices = slices_of(0, len(search.kept), tiles.size)
    places = [_Places(sizes[some] * (depth[some] > 0), depth[some], tiles.dtype) for some in slices]
    extra = _EXTRA if nearest and similarity is None else 0
    found = _Nearest(len(search.kept), min(nearest + extra, search.most))
    counter = None
    if histogram:
        counter = DistanceCounter(search.classes, 2 * tiles.norms.max(), tiles.exact_of_queries)
    reading = _Pass(search, tiles, places, nearest and found, counter)
    if depth.any():
        for block in tiles.blocks_of_classes():
            reading.read(block, slices, tiles.columns_of_classes, reading.find_relevant)
    for some, part in zip(slices, places, strict=True):
        part.finish(lambda scores, some=some: tiles.tolerance(some, scores))
    if depth.any() or nearest or histogram:
        for block in tiles.blocks():
            reading.read(block, slices, tiles.columns_of_all, reading.count)
            if nearest and similarity is None:
                found.measure(tiles, block)
    order = np.argsort(search.kept)
    rows, distances = found.result(nearest, order)
    return Ranking(
        relevant[order],
        _ranks(slices, places, order),
        rows,
        distances if similarity else tiles.distances(distances),
        counter and counter.result(-tiles.exponent),
    )


def _ranks(slices, places, order):
    """The `RelevantRanks` of all queries, in this order."""
    given = np.empty_like(order)
    given[order] = np.arange(len(order))
    parts = [part.ranks() for part in places]
    query = np.concatenate([given[some][of[0]] for some, of in zip(slices, parts, strict=True)])
    order = np.argsort(query, kind="stable")
    place, rank = (np.concatenate([part[i] for part in parts])[order] for i in (1, 2))
    return RelevantRanks(*(of.astype(np.int32) for of in (query[order], place, rank)))


class _Pass:
    """Both readings of the gallery: of the relevant rows, and of all rows."""

    def __init__(self, search, tiles, places, nearest, counter):
        self.search, self.tiles, self.places = search, tiles, places
        self.nearest, self.counter = nearest, counter

    def read(self, block, slices, columns_of, function):
        """Calls a function for each tile of a block."""
        parts = (
            (number, some, columns, block)
            for number, some in enumerate(slices)
            for columns in columns_of(some, block)
        )
        self.tiles.map(function, parts)

    def find_relevant(self, number, some, columns, block):
        """Adds the scores of relevant rows in a tile."""
        scores = self.tiles.scores(some, columns, block)
        first = np.maximum(block.start[some], columns.start)
        sizes = np.maximum(np.minimum(block.stop[some], columns.stop) - first, 0)
        query = np.repeat(np.arange(len(sizes)), sizes)
        column = np.arange(len(query)) + np.repeat(first - np.cumsum(sizes) + sizes, sizes)
        found = scores[query, column - columns.start]
        kept = found > -np.inf
        self.places[number].add(query[kept], found[kept])

    def count(self, number, some, columns, block):
        """Counts the rows in a tile that reach relevant rows, finds the nearest, adds distances."""
        scores = self.tiles.scores(some, columns, block)
        views = [(number, some, columns, scores)]
        if self.search.among_themselves and columns.start > some.start:
            views.append((columns.start // self.tiles.size, columns, some, scores.T))
        for number, queries, rows, view in views:
            if self.nearest:
                self.nearest.add(queries, view, block.rows[rows], self.places[number].lock)
        if self.counter:
            self.counter.add(some, columns, -2 * scores)
        leave_out(scores, block.start[some], block.stop[some], columns)
        for number, _, _, view in views:
            self.places[number].count(view)


class _Places:
    """Scores of the relevant rows of some queries, and numbers of other rows that reach them."""

    def __init__(self, sizes, depth, dtype):
        self.scores = np.full((len(sizes), int(sizes.max(initial=0))), -np.inf, dtype)
        self.filled, self.depth, self.lock = np.zeros(len(sizes), int), depth, threading.Lock()

    def add(self, query, scores):
        """Adds the scores of relevant rows, (t,), of (t,) queries in ascending order."""
        with self.lock:
            if self.scores.shape[1] == 1:
                np.maximum.at(self.scores[:, 0], query, scores)
                return
            found = np.bincount(query, minlength=len(self.filled))
            place = np.arange(len(query)) + (self.filled - np.cumsum(found) + found)[query]
            self.scores[query, place] = scores
            self.filled += found

    def finish(self, tolerance):
        """Orders the scores, once all are added."""
        most = int(min(self.scores.shape[1], self.depth.max(initial=0)))
        self.scores = -np.sort(-self.scores, axis=1)[:, :most]
        self.known = self.scores > -np.inf
        thresholds = np.where(self.known, self.scores, 0.0)
        thresholds = np.where(self.known, thresholds - tolerance(thresholds), -np.inf)
        self.thresholds = thresholds.astype(self.scores.dtype)
        self.before = np.zeros(self.scores.shape, np.int32)
        within = self.depth[:, None] - np.arange(most)
        self.within = np.where(self.known, within, 0)  # `before` must be below

    def count(self, scores):
        """Adds the rows of a tile, (b, c), that reach the relevant rows; -inf for none."""
        largest = scores.max(axis=1)
        asked = (self.thresholds <= largest[:, None]) & (self.before < self.within)
        reached = _reached(scores, self.thresholds, asked)
        with self.lock:
            self.before += reached

    def ranks(self):
        """The queries, places and ranks of the relevant rows, (t,) each."""
        rank = self.before + np.arange(1, 1 + len(self.before.T))
        query, place = _true_places(self.before < self.within)
        return query, place + 1, rank[query, place]


class _Nearest:
    """The rows of the largest scores of each query, best first."""

    def __init__(self, queries, count):
        self.scores = np.full((queries, count), -np.inf)
        self.rows = np.full((queries, count), -1)

    def add(self, queries, scores, rows, lock):
        """Adds (b, c) scores of a slice of queries with (c,) gallery rows."""
        count = self.scores.shape[1]
        if self.rows[queries.start, 0] < 0 and scores.shape[1] > count:  # more than will stay
            column = np.argpartition(scores, -count, axis=1)[:, -count:].reshape(-1)
            query = np.repeat(np.arange(len(scores)), count)
        else:
            query, column = _true_places(scores > self.scores[queries, -1, None])
        if not query.size:
            return
        asked, query_of, found = np.unique(query, return_inverse=True, return_counts=True)
        place = count + np.arange(len(query)) - (np.cumsum(found) - found)[query_of]
        with lock:
            known = queries.start + asked
            spare = np.full((len(asked), found.max()), -1)
            merged = np.concatenate([self.scores[known], spare], axis=1)
            merged_rows = np.concatenate([self.rows[known], spare], axis=1)
            merged[:, count:] = -np.inf
            merged[query_of, place] = scores[query, column]
            merged_rows[query_of, place] = rows[column]
            best = np.lexsort((merged_rows, -merged))[:, :count]
            self.scores[known] = np.take_along_axis(merged, best, axis=1)
            self.rows[known] = np.take_along_axis(merged_rows, best, axis=1)

    def measure(self, tiles, block):
        """Replaces the scores of the rows of a block, while it is in memory, by exact ones."""
        places = np.full(1 + max(block.rows.max(initial=0), self.rows.max()), -1)
        places[block.rows] = np.arange(len(block.rows))
        query, place = np.nonzero((self.rows >= 0) & (places[self.rows] >= 0))
        row = places[self.rows[query, place]]
        self.scores[query, place] = tiles.exact(query, block.embeddings, block.places[row]) / -2

    def result(self, count, order):
        """(n, count) rows and scores, best first, of the queries in this order."""
        best = np.lexsort((self.rows, -self.scores))[order, :count]
        return (np.take_along_axis(of[order], best, axis=1) for of in (self.rows, self.scores))


def _reached(scores, thresholds, asked):
    """(b, p) numbers of scores at or above thresholds, where asked; (b, c), (b, p), (b, p)."""
    reached = np.zeros(asked.shape, np.int32)
    rows, places = (np.flatnonzero(asked.any(axis=axis)) for axis in (1, 0))
    if not rows.size:
        return reached
    if 4 * len(rows) < len(scores):
        scores = scores[rows]
    else:
        rows = np.arange(len(scores))
    asked, limits = asked[rows], thresholds[rows]
    least = np.where(asked, limits, np.inf).min(axis=1).astype(limits.dtype)
    if len(places) == 1:
        # Counted in 16 bits, several times as fast as by `np.count_nonzero`; a tile is narrower.
        reached[rows, places[0]] = np.sum(scores >= least[:, None], axis=1, dtype=np.uint16)
        return reached
    reached[rows] = _reached_by(scores, least, limits)
    return reached


def _reached_by(scores, least, limits):
    """(b, p) numbers of (b, c) scores, of the (b,) least or more, at or above descending limits."""
    mask = scores >= least[:, None]
    found = np.flatnonzero(mask.ravel(order="K"))
    row = found // mask.shape[1] if mask.flags.c_contiguous else found % len(mask)
    found = scores.ravel(order="K")[found]
    rows, places = limits.shape
    step = 2 ** (places.bit_length() - 1)
    ends = np.full((rows, 2 * step), -np.inf, limits.dtype)
    ends[:, :places] = limits
    ends, place = ends.reshape(-1), row * (2 * step)  # the first place whose limit is not above
    while step:
        place += step * (ends[place + step - 1] > found)
        step //= 2
    numbers = np.bincount(place, minlength=len(ends)).reshape(rows, -1)
    return np.cumsum(numbers, axis=1)[:, :places]


def _true_places(mask):
    """The (t,) rows, ascending, and (t,) columns of true entries; faster than `np.nonzero`."""
    if mask.flags.c_contiguous:
        return np.divmod(np.flatnonzero(mask), mask.shape[1])
    column, row = np.divmod(np.flatnonzero(mask.T), mask.shape[0])
    order = np.argsort(row, kind="stable")
    return row[order], column[order]
