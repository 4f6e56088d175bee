"""Inputs of scores, checked: rows of finite floats with a class id each, queries and gallery."""

import operator
from typing import Any, NamedTuple

import numpy as np

from tfdml.checks import Bare, check, check_shapes, check_type, conversion
from tfdml.quiet import warn


def embeddings_and_labels(embeddings, labels, prefix=""):
    """(n, dim) float32 or float64 and (n,) integers, checked; a prefix is that of their names."""
    embeddings = finite_rows(embeddings, f"{prefix}embeddings")
    labels = class_ids(labels, f"{prefix}labels")
    check_alike("batch size", **{f"{prefix}labels": labels, f"{prefix}embeddings": embeddings})
    return embeddings, labels


def finite_rows(embeddings, name="embeddings"):
    """As `embeddings_and_labels`, of embeddings alone."""
    embeddings = np.asarray(embeddings)
    # NumPy knows bfloat16 only as an extension type, without a kind of its own.
    is_float = embeddings.dtype.kind == "f" or embeddings.dtype.name == "bfloat16"
    _check_dtype(is_float, f"`{name}` must be floats", embeddings)
    check_shapes(embeddings.ndim == 2, f"`{name}` must have shape (n, dim)", **{name: embeddings})
    check_shapes(embeddings.size > 0, f"`{name}` must not be empty", **{name: embeddings})
    blocks = (embeddings[first : first + 4096] for first in range(0, len(embeddings), 4096))
    finite = np.concatenate([np.isfinite(block).all(axis=1) for block in blocks])
    not_finite = int(np.count_nonzero(~finite))
    received = {"rows_not_finite": not_finite, "first_row": int(np.argmin(finite))}
    check(not not_finite, f"`{name}` must be finite", **received)
    wide = embeddings.dtype.kind == "f" and embeddings.dtype.itemsize > 4
    return embeddings.astype(np.float64 if wide else np.float32, copy=False)


def class_ids(labels, name="labels"):
    """As `embeddings_and_labels`, of labels alone."""
    labels = np.asarray(labels)
    advice = conversion(name, labels.shape, labels.dtype)
    _check_dtype(labels.dtype.kind in "iu", f"`{name}` must be integers{advice}", labels)
    one_column = labels.ndim and labels.shape[1:] in ((), (1,))
    check_shapes(one_column, f"`{name}` must have shape (n,) or (n, 1){advice}", **{name: labels})
    return labels.reshape(-1)


def check_alike(what, **arrays):
    """Raises a ValueError unless two named arrays have the same "batch size" or "dim"."""
    first, second = arrays
    axis = {"batch size": 0, "dim": 1}[what]
    alike = len({array.shape[axis] for array in arrays.values()}) == 1
    check_shapes(alike, f"`{first}` and `{second}` must have the same {what}", **arrays)


def dense_ids(ids, gallery_ids):
    """Both renumbered as integers from 0 on; equal ids stay equal."""
    if np.result_type(ids, gallery_ids).kind == "f":
        # NumPy compares int64 with uint64 as floats, which merges ids above 2**53.
        ids, gallery_ids = ids.astype(object), gallery_ids.astype(object)
    _, dense = np.unique(np.concatenate([ids, gallery_ids]), return_inverse=True)
    return dense[: len(ids)], dense[len(ids) :]


def neighbour_counts(k, gallery_size):
    """Returns `k`, one positive integer or several, checked, as a sorted list without repeats."""
    several = np.iterable(k) and not isinstance(k, str)
    counts = [_integer(value) for value in (k if several else [k])]
    check(counts and min(counts) > 0, "`k` must be positive integers", k=k)
    expectation = "`k` must not exceed the gallery size, excluding the query itself"
    check(max(counts) <= gallery_size, expectation, k=k, gallery_size=gallery_size)
    return sorted(set(counts))


def check_callable_or_none(**values):
    """Raises a TypeError unless each named value is a callable or None."""
    for name, value in values.items():
        valid = value is None or callable(value)
        check_type(valid, f"`{name}` must be a callable or None", **{name: value})


def scores_of(similarity, a, b, shape):
    """Returns the scores of a callable, checked: finite float64 of `shape`."""
    scores = np.asarray(similarity(a, b))
    shapes = {"a.shape": a.shape, "b.shape": b.shape, "scores.shape": scores.shape}
    check(scores.shape == shape, f"`similarity` must return shape {shape}", **shapes)
    scores = scores.astype(np.float64)
    not_finite = {"scores_not_finite": int(np.count_nonzero(~np.isfinite(scores)))}
    expectation = "`similarity` must return finite scores"
    check(np.isfinite(scores).all(), expectation, **not_finite, **shapes)
    return scores


def warn_of_misses(relevant):
    """Warns of queries without relevant rows, given the (n,) numbers of these."""
    misses = int(np.count_nonzero(relevant == 0))
    if misses:
        cause = "have no other row of their class to find; they count as misses"
        warn(f"{misses} of {len(relevant)} queries {cause}")


def whole_number(value, name, at_least, below=None):
    """Returns `value` as an int; raises a ValueError unless 0 <= `at_least` <= value < `below`."""
    number = _integer(value)
    limit = f" and < {below}" if below else ""
    expectation = f"`{name}` must be an integer >= {at_least}{limit}"
    check(at_least <= number < (below or np.inf), expectation, **{name: value})
    return number


def generator(seed):
    """A generator of random numbers, from a checked seed."""
    return np.random.default_rng(whole_number(seed, "seed", at_least=0))


def _integer(value):
    """The value as an int; -1 for what is none."""
    try:
        return -1 if isinstance(value, (bool, np.bool_)) else operator.index(value)
    except TypeError:
        return -1


def _check_dtype(holds, expectation, array):
    swapped = " (arguments swapped?)" if array.dtype.kind in "iuf" else ""
    check_type(holds, expectation, dtype=Bare(f"{array.dtype}{swapped}"))


class Search(NamedTuple):
    """Queries and the gallery that they search, by sort keys of class and group.

    By default, a group is the query itself. Classes are numbered by descending number of gallery
    rows, so that neighbours in the order of keys have about equally many relevant rows.
    """

    queries: np.ndarray  # (n, dim) as given
    kept: np.ndarray  # (q,) rows of these, by key
    keys: np.ndarray  # (q,) integers, ascending: class * width + group
    width: int
    gallery: Any  # (m, dim) array, or an iterable of (m_i, dim) arrays
    gallery_keys: np.ndarray  # (m,) integers
    own: np.ndarray  # (q, w) gallery rows that are the query itself, -1 for none
    among_themselves: bool  # the queries are the gallery

    @property
    def relevant(self):
        """(q,) number of relevant rows of each query."""
        ordered = np.sort(self.gallery_keys)
        start, stop, left_out, left_out_stop = self.spans(ordered)
        own = (self.own >= 0) & (self.gallery_keys[self.own] // self.width == self.classes[:, None])
        return stop - start - (left_out_stop - left_out) - own.sum(axis=1, dtype=np.int32)

    @property
    def classes(self):
        return self.keys // self.width

    @property
    def most(self):
        """Number of rows that every query can find, excluding itself."""
        own = (self.own >= 0).sum(axis=1).max(initial=0)
        return len(self.gallery_keys) - max(int(self.among_themselves), int(own))

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
    own=None,
):
    """The arguments of `rank` as a `Search`, checked; rows of blocks are checked as they come."""
    among_themselves = gallery_embeddings is None
    embeddings, labels = embeddings_and_labels(embeddings, labels)
    _check_together(gallery_embeddings=gallery_embeddings, gallery_labels=gallery_labels)
    if among_themselves:
        expectation = "`gallery_groups` requires a gallery"
        check(gallery_groups is None, expectation, gallery_embeddings=None)
        gallery, gallery_labels = embeddings, labels
    else:
        gallery, gallery_labels = _gallery(embeddings, gallery_embeddings, gallery_labels)
        _check_together(" if there is a gallery", groups=groups, gallery_groups=gallery_groups)
    mine = _groups(groups, labels)
    others = mine if among_themselves else _groups(gallery_groups, gallery_labels, "gallery_")
    classes, gallery_classes = dense_ids(labels, gallery_labels)
    if groups is not None:
        mine, others = dense_ids(mine, others)
    width = 1 + int(max(mine.max(), others.max()))
    sizes = np.bincount(gallery_classes, minlength=1 + classes.max())
    by_size = np.argsort(np.argsort(-sizes, kind="stable"))
    keys = by_size[classes] * width + mine
    kept = np.argsort(keys, kind="stable")
    own = np.full(len(labels), -1, np.int32) if own is None else np.asarray(own)
    check(len(own) == len(labels), "`own` must have ids for each query", shape=own.shape)
    return Search(
        queries=embeddings,
        kept=kept,
        keys=keys[kept],
        width=width,
        gallery=gallery,
        gallery_keys=by_size[gallery_classes] * width + others,
        own=own.reshape(len(labels), -1)[kept],
        among_themselves=among_themselves,
    )


def apart(embeddings, labels, queries=None):
    """Splits rows into the arguments of a search, such as those of `retrieval_scores`.

    Args:
        embeddings, labels: As for `class_means`, with its errors.
        queries: (n,) booleans, true for queries, false for gallery rows. None to use all as both.

    Returns:
        The embeddings and labels of the queries, and a dict of the keywords `gallery_embeddings`
        and `gallery_labels`, empty if `queries` is None.
    """
    embeddings, labels = embeddings_and_labels(embeddings, labels)
    if queries is None:
        return (embeddings, labels), {}
    queries = np.asarray(queries)
    booleans = queries.shape == labels.shape and queries.dtype == bool
    expectation = "`queries` must be (n,) booleans, some of them true and some false"
    received = {"queries.shape": queries.shape, "queries.dtype": queries.dtype}
    check(booleans and 0 < queries.sum() < len(queries), expectation, **received, n=len(labels))
    gallery = {"gallery_embeddings": embeddings[~queries], "gallery_labels": labels[~queries]}
    return (embeddings[queries], labels[queries]), gallery


def gallery_rows(rows, queries):
    """A block of a gallery as an array, checked: (m_i, dim) floats as wide as the queries."""
    rows = finite_rows(rows, "gallery_embeddings")
    check_alike("dim", embeddings=queries, gallery_embeddings=rows)
    return rows


def _gallery(queries, rows, labels):
    """The embeddings of a gallery, as an array or an iterable of arrays, and (m,) ids."""
    blocks = np.iterable(rows) and not hasattr(rows, "__array__")
    if isinstance(rows, (list, tuple)):
        blocks = bool(rows) and np.ndim(rows[0]) == 2
    if not blocks and not isinstance(rows, np.memmap):
        rows, labels = embeddings_and_labels(rows, labels, "gallery_")
        check_alike("dim", embeddings=queries, gallery_embeddings=rows)
        return rows, labels
    expectation = "`gallery_embeddings` must be blocks that can be read twice, as a list"
    check(iter(rows) is not rows, expectation, type=type(rows).__name__)
    return rows, class_ids(labels, "gallery_labels")


def _check_together(where="", **arrays):
    """Raises a ValueError if only one of two arrays is given."""
    both = " and ".join(f"`{name}`" for name in arrays)
    missing = [name for name, array in arrays.items() if array is None]
    check(len(missing) != 1, f"{both} must be given together{where}", missing=missing)


def _groups(groups, labels, prefix=""):
    """(n,) integers: the groups, checked; by default each query has its own."""
    if groups is None:
        return np.zeros(len(labels), int) if prefix else 1 + np.arange(len(labels))
    groups = class_ids(groups, f"{prefix}groups")
    check_alike("batch size", **{f"{prefix}groups": groups, f"{prefix}labels": labels})
    return groups
