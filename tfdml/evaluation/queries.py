"""Queries, their gallery and their relevant rows, in the order of the classes."""

from typing import Any, NamedTuple

import numpy as np

from tfdml.checks import check, check_type
from tfdml.evaluation import inputs


class Search(NamedTuple):
    """Queries and the gallery that they search, by sort keys of class and group.

    The relevant rows of a query are the gallery rows of its class, except those of its group: by
    default, the query itself. Classes are numbered by descending number of gallery rows, so that
    neighbours in the order of keys have about equally many relevant rows.
    """

    queries: np.ndarray  # (n, dim) as given
    kept: np.ndarray  # (q,) queries that are not of ignored classes, by key
    keys: np.ndarray  # (q,) integers, ascending: class * width + group
    width: int
    gallery: Any  # (m, dim) array, or an iterable of (m_i, dim) arrays
    gallery_keys: np.ndarray  # (m,) integers; -1 for ignored classes
    own: np.ndarray  # (q, w) gallery rows that are the query itself, -1 for none
    among_themselves: bool  # the queries are the gallery

    @property
    def relevant(self):
        """(q,) number of relevant rows of each query."""
        ordered = np.sort(self.gallery_keys)
        start, stop, left_out, left_out_stop = self.spans(ordered)
        own = (self.own >= 0) & (self.gallery_keys[self.own] // self.width == self.classes[:, None])
        return stop - start - (left_out_stop - left_out) - own.sum(axis=1)

    @property
    def classes(self):
        return self.keys // self.width

    @property
    def most(self):
        """Number of rows that every query can find, excluding itself."""
        own = (self.own >= 0).sum(axis=1).max(initial=0)
        return int((self.gallery_keys >= 0).sum()) - max(int(self.among_themselves), int(own))

    def spans(self, keys):
        """Four (q,) arrays: first and end of the class and of the group of each query in keys."""
        ends = self.classes * self.width, (self.classes + 1) * self.width, self.keys, self.keys + 1
        return [np.searchsorted(keys, end).astype(np.int32) for end in ends]

    def of(self, queries):
        """The search of some queries, given as a slice or integers, in the whole gallery."""
        some = {name: getattr(self, name)[queries] for name in ("kept", "keys", "own")}
        return self._replace(among_themselves=False, **some)

    def in_one_array(self):
        """The search itself; raises a ValueError if its gallery comes in blocks."""
        kind, one = type(self.gallery).__name__, isinstance(self.gallery, np.ndarray)
        check(one, "`gallery_embeddings` must be one array", type=kind)
        return self


def search_of(
    embeddings,
    labels,
    gallery_embeddings=None,
    gallery_labels=None,
    *,
    groups=None,
    gallery_groups=None,
    ignored_labels=(),
    own=None,
):
    """The arguments of `rank` as a `Search`, checked; rows of blocks are checked as they come."""
    among_themselves = gallery_embeddings is None
    embeddings, labels = inputs.embeddings_and_labels(embeddings, labels)
    _check_together(gallery_embeddings=gallery_embeddings, gallery_labels=gallery_labels)
    gallery, gallery_labels = embeddings, labels if among_themselves else gallery_labels
    if not among_themselves:
        gallery, gallery_labels = _gallery(embeddings, gallery_embeddings, gallery_labels)
        _check_together(" if there is a gallery", groups=groups, gallery_groups=gallery_groups)
    elif gallery_groups is not None:
        shape = np.shape(gallery_groups)
        check(False, "`gallery_groups` requires a gallery", gallery_groups=shape)
    mine = _groups(groups, labels)
    others = mine if among_themselves else _groups(gallery_groups, gallery_labels, "gallery_")
    kept = _are_kept(labels, ignored_labels, "query")
    gallery_kept = _are_kept(gallery_labels, ignored_labels, "gallery row")
    classes, gallery_classes = inputs.dense_ids(labels, gallery_labels)
    if groups is not None:
        mine, others = inputs.dense_ids(mine, others)
    width = 1 + int(max(mine.max(), others.max()))
    sizes = np.bincount(gallery_classes[gallery_kept], minlength=1 + classes.max())
    by_size = np.empty(len(sizes), int)
    by_size[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    keys = by_size[classes] * width + mine
    kept = np.flatnonzero(kept)
    kept = kept[np.argsort(keys[kept], kind="stable")]
    own = np.full(len(labels), -1) if own is None else np.asarray(own)
    check(len(own) == len(labels), "`own` must have ids for each query", shape=own.shape)
    return Search(
        queries=embeddings,
        kept=kept,
        keys=keys[kept],
        width=width,
        gallery=gallery,
        gallery_keys=np.where(gallery_kept, by_size[gallery_classes] * width + others, -1),
        own=own.reshape(len(labels), -1)[kept],
        among_themselves=among_themselves,
    )


def apart(embeddings, labels, queries=None):
    """Splits rows into the arguments of a search, such as those of `retrieval_scores`.

    Args:
        embeddings, labels: As for `class_means`, with its errors.
        queries: (n,) booleans, some of them true and some false: true for queries, false for
            gallery rows. None to use all rows as both.

    Returns:
        `(data, gallery)`: the embeddings and labels of the queries, and a dict of the keywords
        `gallery_embeddings` and `gallery_labels`, empty if `queries` is None.
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


def gallery_rows(rows, queries):
    """A block of a gallery as an array, checked: (m_i, dim) floats as wide as the queries."""
    rows = inputs.finite_rows(rows, "gallery_embeddings")
    inputs.check_alike("dim", embeddings=queries, gallery_embeddings=rows)
    return rows


def _gallery(queries, rows, labels):
    """The embeddings of a gallery, as an array or an iterable of arrays, and (m,) ids."""
    blocks = np.iterable(rows) and not hasattr(rows, "__array__")
    if isinstance(rows, (list, tuple)):
        blocks = bool(rows) and np.ndim(rows[0]) == 2
    if not blocks and not isinstance(rows, np.memmap):
        rows, labels = inputs.embeddings_and_labels(rows, labels, "gallery_")
        inputs.check_alike("dim", embeddings=queries, gallery_embeddings=rows)
        return rows, labels
    expectation = "`gallery_embeddings` must be blocks that can be read twice, as a list"
    check(iter(rows) is not rows, expectation, type=type(rows).__name__)
    return rows, inputs.class_ids(labels, "gallery_labels")


def _check_together(where="", **arrays):
    """Raises a ValueError if only one of two arrays is given."""
    shapes = {
        name: None if array is None else getattr(array, "shape", type(array).__name__)
        for name, array in arrays.items()
    }
    both = " and ".join(f"`{name}`" for name in arrays)
    given = {array is None for array in arrays.values()}
    check(len(given) == 1, f"{both} must be given together{where}", **shapes)


def _groups(groups, labels, prefix=""):
    """(n,) integers: the groups, checked; by default each query has its own."""
    if groups is None:
        return np.zeros(len(labels), int) if prefix else 1 + np.arange(len(labels))
    groups = inputs.class_ids(groups, f"{prefix}groups")
    inputs.check_alike("batch size", **{f"{prefix}groups": groups, f"{prefix}labels": labels})
    return groups


def _are_kept(labels, ignored_labels, what):
    """(n,) booleans, which rows are not of ignored classes."""
    ignored = list(ignored_labels) if np.iterable(ignored_labels) else [ignored_labels]
    whole = all(isinstance(label, (int, np.integer)) for label in ignored)
    check_type(whole, "`ignored_labels` must be integers", ignored_labels=ignored_labels)
    ignored = {int(label) for label in ignored}
    classes, ids = np.unique(labels, return_inverse=True)
    kept = np.array([int(label) not in ignored for label in classes])[ids]
    check(kept.any(), f"`ignored_labels` must leave a {what}", ignored_labels=ignored_labels)
    return kept
