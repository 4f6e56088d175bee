"""Queries, gallery and relevant rows of a search."""

import itertools
from typing import NamedTuple

import numpy as np

from tfdml.checks import check, check_type
from tfdml.evaluation import inputs


class Search(NamedTuple):
    """Queries and gallery, both in the order of their classes.

    Gallery rows start[i] to stop[i] are of the class of query i. They are its relevant rows, except
    left_out[i] to left_out_stop[i]: the query itself, or the rows of its group.
    """

    queries: np.ndarray  # (n, dim)
    gallery: np.ndarray  # (m, dim)
    order: np.ndarray  # (n,) position of each query in the input without ignored classes
    start: np.ndarray
    stop: np.ndarray
    left_out: np.ndarray
    left_out_stop: np.ndarray
    among_themselves: bool  # query i is gallery row i, before `of` takes some

    @property
    def relevant(self):
        """(n,) number of relevant rows of each query."""
        return (self.stop - self.start) - (self.left_out_stop - self.left_out)

    @property
    def most(self):
        """Number of rows that a query can find, excluding itself."""
        return len(self.gallery) - self.among_themselves

    def of(self, queries):
        """The search of some queries, given as a slice or as integers, in the whole gallery."""
        names = ("queries", "order", "start", "stop", "left_out", "left_out_stop")
        return self._replace(**{name: getattr(self, name)[queries] for name in names})

    def pairs(self, first, last):
        """Pairs of queries first to last with their relevant rows: two (t,) arrays of integers.

        Queries are counted from `first`; pairs come in the order of queries, then of gallery rows.
        """
        sizes = (self.stop - self.start)[first:last]
        query = np.repeat(np.arange(last - first), sizes)
        ends = np.cumsum(sizes)
        row = np.arange(len(query)) - (ends - sizes - self.start[first:last])[query]
        left_out, left_out_stop = self.left_out[first:last], self.left_out_stop[first:last]
        kept = (row < left_out[query]) | (row >= left_out_stop[query])
        return query[kept], row[kept]

    def related(self, rows, columns):
        """The slice of the gallery rows of a tile from the first to the last class of its queries.

        A tile is a slice of queries and one of gallery rows.
        """
        start, stop = self.start[rows.start], self.stop[rows.stop - 1]
        start = min(max(start, columns.start), columns.stop)
        return slice(start, max(start, min(stop, columns.stop)))

    def leave_out_classes(self, scores, rows, columns):
        """Sets the scores of a tile to -inf, in place, where a row is of the class of the query."""
        start, stop = self.start[rows], self.stop[rows]
        # Of two classes, one of them maybe without a gallery row, the sums differ.
        edges = np.flatnonzero(np.diff(start + stop, prepend=-1, append=-1)).tolist()
        for first, last in itertools.pairwise(edges):
            left, right = max(start[first], columns.start), min(stop[first], columns.stop)
            if left < right:
                scores[first:last, left - columns.start : right - columns.start] = -np.inf

    def is_relevant(self, rows, columns):
        """(b, c) booleans of a tile, true where a gallery row is relevant to the query."""
        row = np.arange(columns.start, columns.stop)
        same = (row >= self.start[rows, None]) & (row < self.stop[rows, None])
        kept = (row < self.left_out[rows, None]) | (row >= self.left_out_stop[rows, None])
        return same & kept


class RelevantRanks(NamedTuple):
    """Ranks of the relevant rows of some queries; those beyond the requested depth may be missing.

    The i-th relevant row of a query, with b rows of other classes at or before it, has rank i + b.
    Sorted by query, then by place.
    """

    first: int  # first query, in the order of the search
    last: int
    query: np.ndarray  # (t,) integers, counted from `first`
    place: np.ndarray  # (t,) integers, 1 for the nearest relevant row
    rank: np.ndarray  # (t,) integers


def ranks_of(first, last, query, before):
    """`RelevantRanks` from the numbers of rows of other classes at or before each relevant row.

    Args:
        first: The first query.
        last: One after the last query.
        query: (t,) integers, counted from `first`, in any order.
        before: (t,) integers. The nearest relevant row of a query has the fewest rows before it.
    """
    # Sorting one number takes a fraction of the time of sorting two.
    width = before.max(initial=0) + 1
    query, before = np.divmod(np.sort(query * width + before), width)
    starts = np.searchsorted(query, np.arange(last - first))
    place = np.arange(len(query)) - starts[query] + 1
    return RelevantRanks(first, last, query, place, place + before)


def slices_of(start, stop, size):
    """Consecutive slices of at most `size` that cover the rows from start to stop."""
    return [slice(first, min(first + size, stop)) for first in range(start, stop, size)]


def true_places(mask):
    """The (t,) rows and (t,) columns of the true entries, several times as fast as `nonzero`."""
    return np.divmod(np.flatnonzero(mask), mask.shape[1])


def search_of(
    embeddings,
    labels,
    *,
    gallery_embeddings=None,
    gallery_labels=None,
    groups=None,
    gallery_groups=None,
    ignored_labels=(),
):
    """Checks the arguments of `retrieval_scores` and returns them as a `Search`.

    Raises:
        TypeError: If labels or groups are not integers, or embeddings not floats.
        ValueError: If shapes disagree, an input is empty or not finite, embeddings or labels of the
            gallery are missing, groups are given for a part only, or all classes are ignored.
    """
    among_themselves = gallery_embeddings is None
    data = (embeddings, labels, gallery_embeddings, gallery_labels)
    queries, labels, gallery, gallery_labels = inputs.queries_and_gallery(*data)
    if not among_themselves:
        both = {"groups": groups, "gallery_groups": gallery_groups}
        inputs.check_together(" if there is a gallery", **both)
    elif gallery_groups is not None:
        shape = np.shape(gallery_groups)
        check(False, "`gallery_groups` requires a gallery", gallery_groups=shape)
    own = _groups_of(groups, labels)
    others = own if among_themselves else _groups_of(gallery_groups, gallery_labels, "gallery_")
    kept = _kept(labels, ignored_labels, "query")
    gallery_kept = _kept(gallery_labels, ignored_labels, "gallery row")
    classes, gallery_classes = inputs.dense_ids(labels[kept], gallery_labels[gallery_kept])
    own, others = inputs.dense_ids(own[kept], others[gallery_kept])
    width = 1 + max(own.max(), others.max())
    keys, gallery_keys = classes * width + own, gallery_classes * width + others
    order, gallery_order = (np.argsort(of, kind="stable") for of in (keys, gallery_keys))
    keys, gallery_keys, classes = keys[order], gallery_keys[gallery_order], classes[order]
    rows = queries[kept[order]]
    return Search(
        queries=rows,
        gallery=rows if among_themselves else gallery[gallery_kept[gallery_order]],
        order=order,
        start=np.searchsorted(gallery_keys, classes * width),
        stop=np.searchsorted(gallery_keys, (classes + 1) * width),
        left_out=np.searchsorted(gallery_keys, keys),
        left_out_stop=np.searchsorted(gallery_keys, keys, side="right"),
        among_themselves=among_themselves,
    )


def apart(embeddings, labels, queries=None):
    """Splits rows into the arguments of a search, such as those of `retrieval_scores`.

    Args:
        embeddings: (n, dim) floats.
        labels: (n,) or (n, 1) integers.
        queries: (n,) booleans: true for queries, false for gallery rows. None to use all rows as
            both.

    Returns:
        `(data, gallery)`: the embeddings and labels of the queries, and a dict of the keywords
        `gallery_embeddings` and `gallery_labels`, empty if `queries` is None.

    Raises:
        TypeError: If `labels` are not integers or `embeddings` not floats.
        ValueError: If shapes disagree, an input is empty or not finite, or `queries` are not (n,)
            booleans, some of them true and some false.

    Example:
        >>> from tfdml.evaluation import recall_at_k
        >>> line, labels = np.array([[0.0], [1.0], [3.0], [3.5]]), np.array([0, 1, 0, 1])
        >>> data, gallery = apart(line, labels, np.array([True, True, False, False]))
        >>> recall_at_k(*data, k=1, **gallery)
        {1: 0.5}
    """
    embeddings, labels = inputs.embeddings_and_labels(embeddings, labels)
    if queries is None:
        return (embeddings, labels), {}
    queries = np.asarray(queries)
    booleans = queries.shape == labels.shape and queries.dtype == bool
    expectation = "`queries` must be (n,) booleans, some of them true and some false"
    received = {"queries.shape": queries.shape, "queries.dtype": queries.dtype, "n": len(labels)}
    check(booleans and 0 < queries.sum() < len(queries), expectation, **received)
    gallery = {"gallery_embeddings": embeddings[~queries], "gallery_labels": labels[~queries]}
    return (embeddings[queries], labels[queries]), gallery


def _groups_of(groups, labels, prefix=""):
    """(n,) integers: the groups, checked; by default each row has its own, also in a gallery."""
    if groups is None:
        return np.arange(len(labels)) if not prefix else -1 - np.arange(len(labels))
    groups = inputs.class_ids(groups, f"{prefix}groups")
    shapes = {f"{prefix}groups.shape": groups.shape, f"{prefix}labels.shape": labels.shape}
    expectation = f"`{prefix}groups` and `{prefix}labels` must have the same batch size"
    check(len(groups) == len(labels), expectation, **shapes)
    return groups


def _kept(labels, ignored_labels, what):
    """Numbers of the rows that are not of ignored classes."""
    ignored = list(ignored_labels) if np.iterable(ignored_labels) else [ignored_labels]
    whole = all(isinstance(label, (int, np.integer)) for label in ignored)
    check_type(whole, "`ignored_labels` must be integers", ignored_labels=ignored_labels)
    ignored = {int(label) for label in ignored}
    classes, ids = np.unique(labels, return_inverse=True)
    kept = np.flatnonzero(np.array([int(label) not in ignored for label in classes])[ids])
    check(kept.size, f"`ignored_labels` must leave a {what}", ignored_labels=ignored_labels)
    return kept
