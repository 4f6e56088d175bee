"""Exact ranks of relevant rows in a gallery that is read chunk by chunk, twice."""

from typing import NamedTuple

import numpy as np

from tfdml.evaluation.exact import points
from tfdml.evaluation.exact.counting import Bounds, Counter
from tfdml.evaluation.exact.search import Search, ranks_of

_BLOCK_BYTES = 2**25  # of float32 scores held at once
_SAMPLE_ROWS = 64  # of each chunk, for the centre of the gallery


class Chunk(NamedTuple):
    """Some rows of a gallery."""

    ids: np.ndarray  # (m,) integers, in ascending order
    embeddings: np.ndarray  # (m, dim) float32, finite
    classes: np.ndarray  # (m,) integers


def ranks_in_chunks(queries, classes, chunks, metrics, own):
    """Ranks the relevant rows of each query among all gallery rows; ties count as errors.

    The ranks are those of `ranks_by_distance` in the joined chunks. The first pass computes the
    float64 distances of all pairs of a query and a relevant row; the second counts, for each of
    them, the rows of other classes that are as near, by one float32 product of the queries and each
    chunk. The cost over that of ranks in memory is a second reading of the gallery. Uses about 4
    bytes per number of the queries, 32 bytes per pair, 8 bytes per number of a chunk, and a block.

    Args:
        queries: (n, dim) float32, finite.
        classes: (n,) integers.
        chunks: Function that returns an iterable of the `Chunk`s; called twice.
        metrics: `Metrics` that the ranks are for: they decide how deep the ranks must be exact.
        own: (n, m) ids of the gallery rows that are the queries themselves, which are excluded; -1
            for none.

    Returns:
        The `RelevantRanks` of all queries, and the (n,) numbers of their relevant rows.
    """
    relevant, pairs, frame = _relevant_pairs(queries, classes, chunks, metrics.only_nearest, own)
    depth, asked = metrics.depth(relevant), frame.points(queries)
    query, distance = pairs
    squared = np.ldexp(distance, -2 * frame.exponent)
    low, high = points.score_bounds(asked.squared_norms[query], squared, queries.shape[1])
    bounds = Bounds(query, squared, low, high)
    before = np.zeros(len(query), int)
    edges = np.searchsorted(query, np.arange(len(queries) + 1))
    for chunk in chunks():
        search, own_rows = _search_of(queries, classes, own, chunk)
        counter = Counter(asked, frame.points(search.gallery))
        _count(search, own_rows, counter, bounds, edges, depth, before)
    return ranks_of(0, len(queries), query, before), relevant


def _relevant_pairs(queries, classes, chunks, only_nearest, own):
    """The pairs of queries and relevant rows, and the `Frame` of all rows.

    Returns:
        The (n,) numbers of relevant rows; the (t,) queries and the (t,) squared distances of the
        pairs, sorted by query, then by distance, with `only_nearest` one of each query; the frame.
    """
    relevant = np.zeros(len(queries), int)
    nearest, found, sample = np.full(len(queries), np.inf), [], []
    largest = np.abs(queries).max(axis=0)
    for chunk in chunks():
        search, own_rows = _search_of(queries, classes, own, chunk)
        query, row = search.pairs(0, len(queries))
        others = (own_rows[query] != row[:, None]).all(axis=1)
        query, row = query[others], row[others]
        distance = points.squared_distances(queries, query, search.gallery, row)
        relevant += np.bincount(query, minlength=len(queries))
        if only_nearest:
            np.minimum.at(nearest, query, distance)
        else:
            found.append((query.astype(np.int32), distance))
        largest = np.maximum(largest, np.abs(chunk.embeddings).max(axis=0))
        sample.append(chunk.embeddings[:: max(1, len(chunk.ids) // _SAMPLE_ROWS)][:_SAMPLE_ROWS])
    if only_nearest:
        found = [(np.flatnonzero(relevant), nearest[relevant > 0])]
    query, distance = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.lexsort((distance, query))
    frame = points.Frame.around(np.concatenate(sample), largest[None])
    return relevant, (query[order].astype(int), distance[order]), frame


def _search_of(queries, classes, own, chunk):
    """The `Search` of the queries in a chunk, and the (n, m) rows of the queries in it, or -1.

    The queries themselves are not left out of the search.
    """
    order = np.argsort(chunk.classes, kind="stable")
    gallery_classes = chunk.classes[order]
    start = np.searchsorted(gallery_classes, classes)
    stop = np.searchsorted(gallery_classes, classes, side="right")
    place = np.minimum(np.searchsorted(chunk.ids, own), len(order) - 1)
    sorted_row = np.empty_like(order)
    sorted_row[order] = np.arange(len(order))
    own_rows = np.where(chunk.ids[place] == own, sorted_row[place], -1)
    search = Search(
        queries=queries,
        gallery=chunk.embeddings[order],
        order=np.arange(len(queries)),
        start=start,
        stop=stop,
        left_out=start,
        left_out_stop=start,
        among_themselves=False,
    )
    return search, own_rows


def _count(search, own_rows, counter, bounds, edges, depth, before):
    """Adds the rows of a chunk to `before`; numbers may be inexact once they reach the depth."""
    columns, asked = counter.gallery.score_columns(), counter.queries
    # Distances ascend, and so do the numbers of rows before: the first ones are within the depth.
    within = np.concatenate([[0], np.cumsum(before < depth[bounds.query])])
    within = within[edges[1:]] - within[edges[:-1]]
    active = np.flatnonzero(within)
    block = max(1, _BLOCK_BYTES // (4 * columns.shape[1]))
    buffer = np.empty((min(block, len(active)), columns.shape[1]), np.float32)
    for first in range(0, len(active), block):
        some = active[first : first + block]
        scores = np.matmul(asked.score_rows(some), columns, out=buffer[: len(some)])
        for of, query in zip(scores, some.tolist(), strict=True):
            of[search.start[query] : search.stop[query]] = -np.inf
            of[own_rows[query, own_rows[query] >= 0]] = -np.inf
            begin = edges[query]
            known = slice(begin, begin + within[query])
            missing = depth[query] - before[begin]
            more = counter.before(query, of, bounds.of(known), missing)
            before[begin : begin + len(more)] += more
            before[begin + len(more) : known.stop] += len(of)  # beyond the depth
