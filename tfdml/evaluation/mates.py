"""Queries, gallery and relevant rows of a search."""

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
    among_themselves: bool  # query i is gallery row i

    @property
    def relevant(self):
        """(n,) number of relevant rows of each query."""
        return (self.stop - self.start) - (self.left_out_stop - self.left_out)

    @property
    def most(self):
        """Number of rows that a query can find, excluding itself."""
        return len(self.gallery) - self.among_themselves

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
        query: (t,) integers in ascending order, counted from `first`.
        before: (t,) integers, in any order within a query: the nearest relevant row has the fewest.
    """
    before = before[np.lexsort((before, query))]
    starts = np.searchsorted(query, np.arange(last - first))
    place = np.arange(len(query)) - starts[query] + 1
    return RelevantRanks(first, last, query, place, place + before)


def search_of(
    embeddings,
    labels,
    gallery_embeddings,
    gallery_labels,
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
    embeddings, labels, gallery_embeddings, gallery_labels = inputs.queries_and_gallery(
        embeddings, labels, gallery_embeddings, gallery_labels
    )
    among_themselves = gallery_labels is None
    groups, gallery_groups = _checked_groups(groups, gallery_groups, labels, gallery_labels)
    kept = ~_is_ignored(labels, ignored_labels)
    check(kept.any(), "`ignored_labels` must leave a query", ignored_labels=ignored_labels)
    if among_themselves:
        gallery_embeddings, gallery_labels, gallery_kept = embeddings, labels, kept
        if groups is None:
            groups = np.arange(len(labels))  # each row a group of its own
        gallery_groups = groups
    else:
        gallery_kept = ~_is_ignored(gallery_labels, ignored_labels)
        expectation = "`ignored_labels` must leave a gallery row"
        check(gallery_kept.any(), expectation, ignored_labels=ignored_labels)
        if groups is None:
            groups, gallery_groups = np.zeros(len(labels), int), np.ones(len(gallery_labels), int)
    classes, gallery_classes = _dense(labels[kept], gallery_labels[gallery_kept])
    groups, gallery_groups = _dense(groups[kept], gallery_groups[gallery_kept])
    width = 1 + max(groups.max(), gallery_groups.max())
    keys, gallery_keys = classes * width + groups, gallery_classes * width + gallery_groups
    order, gallery_order = (np.argsort(of, kind="stable") for of in (keys, gallery_keys))
    keys, gallery_keys, classes = keys[order], gallery_keys[gallery_order], classes[order]
    return Search(
        queries=embeddings[np.flatnonzero(kept)[order]],
        gallery=gallery_embeddings[np.flatnonzero(gallery_kept)[gallery_order]],
        order=order,
        start=np.searchsorted(gallery_keys, classes * width),
        stop=np.searchsorted(gallery_keys, (classes + 1) * width),
        left_out=np.searchsorted(gallery_keys, keys),
        left_out_stop=np.searchsorted(gallery_keys, keys, side="right"),
        among_themselves=among_themselves,
    )


def _checked_groups(groups, gallery_groups, labels, gallery_labels):
    given = {"groups": groups, "gallery_groups": gallery_groups}
    shapes = {name: None if of is None else np.shape(of) for name, of in given.items()}
    if gallery_labels is None:
        check(gallery_groups is None, "`gallery_groups` requires a gallery", **shapes)
    else:
        check(
            (groups is None) == (gallery_groups is None),
            "`groups` and `gallery_groups` must be given together if there is a gallery",
            **shapes,
        )
    return (
        _groups_of(groups, labels, "groups", "labels"),
        _groups_of(gallery_groups, gallery_labels, "gallery_groups", "gallery_labels"),
    )


def _groups_of(groups, labels, name, labels_name):
    if groups is None:
        return None
    groups = inputs.class_ids(groups, name)
    check(
        len(groups) == len(labels),
        f"`{name}` and `{labels_name}` must have the same batch size",
        **{f"{name}.shape": groups.shape, f"{labels_name}.shape": labels.shape},
    )
    return groups


def _is_ignored(labels, ignored_labels):
    ignored = list(ignored_labels) if np.iterable(ignored_labels) else [ignored_labels]
    whole = all(isinstance(label, (int, np.integer)) for label in ignored)
    check_type(whole, "`ignored_labels` must be integers", ignored_labels=ignored_labels)
    ignored = {int(label) for label in ignored}
    if not ignored:
        return np.zeros(len(labels), bool)
    classes, ids = np.unique(labels, return_inverse=True)
    return np.array([int(label) in ignored for label in classes])[ids]


def _dense(ids, gallery_ids):
    """Both renumbered as integers from 0 on; equal ids stay equal."""
    if np.result_type(ids, gallery_ids).kind == "f":
        # NumPy compares int64 with uint64 as floats, which merges ids above 2**53.
        ids, gallery_ids = ids.astype(object), gallery_ids.astype(object)
    _, dense = np.unique(np.concatenate([ids, gallery_ids]), return_inverse=True)
    return dense[: len(ids)], dense[len(ids) :]
