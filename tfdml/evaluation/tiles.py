"""Scores of all pairs of queries and gallery rows, tile by tile, for `tfdml.evaluation.rank`."""

import collections
import itertools
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from tfdml.checks import check
from tfdml.evaluation import inputs

_TILE_ROWS = 512  # a tile of float32 fills 1.6 MB
_SCORED_ROWS = 256  # of a learned similarity
_CHUNK_ROWS = 256  # rows centred, or exact distances computed, at once
_BLOCK_ROWS = 2**16  # rows of a memory map read at once
_CENTRE_ROWS = 1001  # odd: the median of equal rows is then that row
_LARGEST = 40  # exponent of the largest number: norms down to 2**-100 of it keep their digits
_EPSILON = 2.0**-24  # relative rounding error of float32
_MOST_THREADS = 16  # each holds a tile, and all share one interpreter
_ASYMMETRY = 1e-2  # relative to the largest score: above the rounding of bfloat16


class Block(NamedTuple):
    """Gallery rows that are in memory, in the order of their keys."""

    rows: np.ndarray  # (m,) row numbers in the gallery
    embeddings: np.ndarray  # as given, in the order of the gallery
    places: np.ndarray  # (m,) places of the rows in these
    start: np.ndarray  # (q,) for each query, the first place of its class
    stop: np.ndarray
    left_out: np.ndarray  # (q,) the first place of its group
    left_out_stop: np.ndarray
    own: np.ndarray  # (q, w) places of the query itself, -1 for none


class _Tiles:
    """Blocks of the gallery, and the tiles in them; a tile is two slices, of queries and rows."""

    size: int  # of both slices

    def __init__(self, search):
        self.search, self.block = search, None

    def blocks(self, classes=None):
        """Yields the `Block`s of the gallery; of rows of some classes only, if these are given."""
        first, keys = 0, self.search.gallery_keys
        for embeddings in _arrays(self.search):
            block = self.block or _block(self.search, first, embeddings, classes)
            self.block = block if self.search.among_themselves else None  # read twice
            first += len(embeddings)
            self.enter(block)
            yield block
        labels, expectation = len(keys), "`gallery_labels` must have one label per gallery row"
        check(first == labels, expectation, labels=labels, rows=first)

    def enter(self, block):
        """Prepares the rows of a block."""

    def blocks_of_classes(self):
        """Yields `Block`s of the gallery rows that have the class of a query, and maybe others."""
        return self.blocks()

    def columns_of_classes(self, some, block):
        """Slices of the gallery rows that have the classes of some queries, cut as all tiles."""
        start, stop = block.start[some.start], block.stop[some.stop - 1]
        columns = slices_of(0, len(block.rows), self.size)
        return [part for part in columns if part.start < stop and part.stop > start]

    def columns_of_all(self, some, block):
        """Slices of the gallery rows; among themselves, from those of the queries on."""
        first = some.start if self.search.among_themselves else 0
        return slices_of(first, len(block.rows), self.size)

    def map(self, function, parts):
        """Calls `function(*part)` for each part."""
        for part in parts:
            function(*part)

    def leave_out_queries(self, scores, some, columns, block):
        """Sets the scores of queries with themselves, or their group, to -inf."""
        leave_out(scores, block.left_out[some], block.left_out_stop[some], columns)
        own = block.own[some]
        query, place = np.nonzero((own >= columns.start) & (own < columns.stop))
        scores[query, own[query, place] - columns.start] = -np.inf


class DistanceTiles(_Tiles):
    """Tiles of -D**2 / 2, by one product of centred and scaled rows.

    With rows (a, -|a|**2 / 2, 1) and (b, 1, -|b|**2 / 2), the product is a.b - |a|**2/2 - |b|**2/2.
    """

    size = _TILE_ROWS

    def __init__(self, search, dtype):
        super().__init__(search)
        self.dtype, self._buffers = np.dtype(dtype), threading.local()
        known = [search.queries]
        if isinstance(search.gallery, np.ndarray) and not search.among_themselves:
            known.append(search.gallery)
        largest = max(float(max(rows.max(), -rows.min())) for rows in known)
        self.exponent = _LARGEST - int(np.frexp(largest)[1])
        sample = known[-1][:: max(1, len(known[-1]) // _CENTRE_ROWS)][:_CENTRE_ROWS]
        sample = sample[: len(sample) - (len(sample) + 1) % 2].astype(np.float64)
        self.centre = np.sort(np.ldexp(sample, self.exponent), axis=0)[len(sample) // 2]
        self.queries, self.norms = self._factors(search.queries, search.kept)

    def blocks_of_classes(self):
        classes = None if self.search.among_themselves else np.unique(self.search.classes)
        return self.blocks(classes)

    def columns_of_classes(self, some, block):
        return slices_of(block.start[some.start], block.stop[some.stop - 1], self.size)

    def enter(self, block):
        self._held = {}

    def scores(self, some, columns, block):
        """(b, c) scores in a buffer of the thread; -inf for a query itself."""
        shape = some.stop - some.start, columns.stop - columns.start
        if not hasattr(self._buffers, "scores"):
            self._buffers.scores = np.empty(self.size**2, self.dtype)
        scores = self._buffers.scores[: shape[0] * shape[1]].reshape(shape)
        rows = self.queries[some].copy()
        rows[:, [-2, -1]] = rows[:, [-1, -2]]
        np.matmul(rows, self._gallery_factors(columns, block).T, out=scores)
        self.leave_out_queries(scores, some, columns, block)
        return scores

    def tolerance(self, some, scores):
        """What float32 cannot tell apart from (b, p) scores of relevant rows of some queries."""
        distances = np.sqrt(np.maximum(-2.0 * scores, 0))
        return _EPSILON * (2 * self.norms[some, None] + distances) ** 2

    def exact(self, queries, embeddings, rows):
        """(t,) float64 squared distances of (t,) queries to (t,) of some embeddings."""
        given = self.search.queries, self.search.kept[queries], embeddings, rows
        return squared_distances(*given, self.exponent)

    def exact_of_queries(self, queries, others):
        """As `exact`, of (t,) queries to (t,) others."""
        return self.exact(queries, self.search.queries, self.search.kept[others])

    def distances(self, scores):
        """Euclidean distances of the rows as given, from scores."""
        return np.ldexp(np.sqrt(-2 * scores), -self.exponent)

    def map(self, function, parts):
        """Calls `function(*part)` for each part; of several, each has one core for itself."""
        parts = list(parts)
        if len(parts) < 2:  # saves the milliseconds of finding the libraries to limit
            return super().map(function, parts)
        threads = min(os.cpu_count() or 1, _MOST_THREADS)
        waiting = iter(parts)  # shared: `next` of a list's iterator needs no lock

        def work():
            for part in waiting:
                function(*part)

        with threadpool_limits(1, "blas"), ThreadPoolExecutor(threads) as pool:
            try:
                for worker in [pool.submit(work) for _ in range(threads)]:
                    worker.result()
            finally:
                collections.deque(waiting, 0)  # no worker goes on after an error

    def _gallery_factors(self, columns, block):
        """The factors of a slice of gallery rows, computed by the thread that first needs them."""
        if self.search.among_themselves:
            return self.queries[columns]
        key = columns.start, columns.stop
        if key not in self._held:
            self._held[key], _ = self._factors(block.embeddings, block.places[columns])
        return self._held[key]

    def _factors(self, rows, order):
        """(n, dim + 2) factors of the rows in this order, and their (n,) norms."""
        factors = np.ones((len(order), rows.shape[1] + 2), self.dtype)
        squared = np.empty(len(order))
        for first in range(0, len(order), _CHUNK_ROWS):
            some = slice(first, first + _CHUNK_ROWS)
            chunk = np.ldexp(rows[order[some]].astype(np.float64), self.exponent) - self.centre
            squared[some] = np.einsum("ij,ij->i", chunk, chunk)
            factors[some, :-2] = chunk
        factors[:, -1] = -squared / 2
        return factors, np.sqrt(squared)


class SimilarityTiles(_Tiles):
    """Tiles of a learned similarity, in which each pair is scored once; kept until counted."""

    size = _SCORED_ROWS
    dtype = np.dtype(np.float64)

    def __init__(self, search, similarity):
        super().__init__(search)
        self.similarity, self._kept = similarity, {}
        self.queries = search.queries[search.kept]

    def enter(self, block):
        own = self.search.among_themselves
        self.gallery = self.queries if own else block.embeddings[block.places]

    def scores(self, some, columns, block):
        if self.search.among_themselves and columns.start < some.start:
            return self.scores(columns, some, block).T
        key = some.start, block.rows[columns.start]
        if key not in self._kept:
            shape = some.stop - some.start, columns.stop - columns.start
            given = self.queries[some], self.gallery[columns]
            scores = inputs.scores_of(self.similarity, *given, shape)
            if self.search.among_themselves and some == columns:
                scores = _one_score_per_pair(scores)
            self.leave_out_queries(scores, some, columns, block)
            self._kept[key] = scores
        return self._kept[key]

    def columns_of_all(self, some, block):
        """Forgets each tile once it was counted."""
        for columns in super().columns_of_all(some, block):
            yield columns
            self._kept.pop((some.start, block.rows[columns.start]))

    def tolerance(self, some, scores):
        return 0.0


def scores_to_rank(count):
    """Number of scores that a similarity computes to rank `count` rows among themselves."""
    return sum((tile.stop - tile.start) * tile.stop for tile in slices_of(0, count, _SCORED_ROWS))


def slices_of(start, stop, size):
    """Consecutive slices of at most `size` that cover the rows from start to stop."""
    return [slice(first, min(first + size, stop)) for first in range(start, stop, size)]


def squared_distances(queries, query, gallery, row, exponent=0):
    """(t,) float64 squared distances of (t,) queries to (t,) gallery rows, times 4**exponent."""
    squared = np.empty(len(query))
    for some in slices_of(0, len(query), _CHUNK_ROWS):
        difference = gallery[row[some]].astype(np.float64)
        difference -= queries[query[some]]
        squared[some] = np.square(np.ldexp(difference, exponent)).sum(axis=1)
    return squared


def leave_out(scores, start, stop, columns):
    """Sets (b, c) scores to -inf, in place, at the places from start to stop of each query."""
    hit = (start < columns.stop) & (stop > columns.start) & (start < stop)
    if not hit.any():
        return
    if (stop - start <= 1).all():
        scores[hit, start[hit] - columns.start] = -np.inf
        return
    # Of two spans, the sums differ.
    edges = np.flatnonzero(np.diff(np.where(hit, start + stop, 0), prepend=0, append=0))
    for first, last in itertools.pairwise(edges.tolist()):
        if hit[first]:
            left, right = max(start[first], columns.start), min(stop[first], columns.stop)
            scores[first:last, left - columns.start : right - columns.start] = -np.inf


def _arrays(search):
    """The gallery as one array in memory, or as several that are read, and checked, by and by."""
    blocks = gallery = search.gallery
    if type(gallery) is np.ndarray:
        return [gallery]
    if isinstance(gallery, np.memmap):
        blocks = (gallery[some] for some in slices_of(0, len(gallery), _BLOCK_ROWS))
    return (inputs.gallery_rows(rows, search.queries) for rows in blocks)


def _block(search, first, embeddings, classes=None):
    keys = search.gallery_keys[first : first + len(embeddings)]
    kept = slice(None) if classes is None else np.isin(keys // search.width, classes)
    places = np.arange(len(keys), dtype=np.int32)[kept]
    places = places[np.argsort(keys[places], kind="stable")]
    own = search.own
    if (own >= 0).any():
        own = own - first
        by_row = np.full(len(embeddings) + 1, -1)
        by_row[places] = np.arange(len(places))
        own = by_row[np.where((own >= 0) & (own < len(embeddings)), own, -1)]
    start, stop, left_out, left_out_stop = search.spans(keys[places])
    rows = first + places
    return Block(rows, embeddings, places, start, stop, left_out, left_out_stop, own)


def _one_score_per_pair(scores):
    """Mirrors the scores above the diagonal."""
    difference = np.abs(scores - scores.T).max()
    symmetric = difference <= _ASYMMETRY * np.abs(scores).max()
    check(symmetric, "`similarity` must be symmetric", largest_difference=float(difference))
    scores = np.triu(scores, 1)
    return scores + scores.T
