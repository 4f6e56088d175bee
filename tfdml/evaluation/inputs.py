"""Checks of the inputs of scores: rows of finite floats, one integer class id each."""

import operator
import sys
import warnings

import numpy as np

from tfdml.checks import check, check_shapes, check_type, conversion


def embeddings_and_labels(embeddings, labels, prefix=""):
    """Returns (n, dim) float32 or float64 and (n,) integers, checked.

    Labels, (n,) or (n, 1), keep their dtype: a float would merge large ids. Names in messages begin
    with the prefix, as `gallery_embeddings`.

    Raises:
        TypeError: If `embeddings` are not floats or `labels` not integers.
        ValueError: If the shapes disagree, nothing is given, or a number is not finite.
    """
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
    """Returns `k`, one positive integer or several, as a sorted list without repeats.

    Raises:
        ValueError: If a number is not a positive integer or exceeds `gallery_size`, the number of
            rows that a query can find, excluding itself.
    """
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


def warn_if_equal(best):
    """Warns if the best scores of all queries, -inf for none, are equal, as with dead units."""
    best = best[best > -np.inf]
    if len(best) > 2 and best.min() == best.max():
        warn(f"`similarity` may have collapsed: its best scores are all equal, {best[0]:.4g}")


def warn(message):
    """Warns of the line that called this library."""
    frame, level = sys._getframe(), 1
    while frame.f_back and frame.f_globals["__name__"].startswith("tfdml."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


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
    if not holds:
        swapped = " (arguments swapped?)" if array.dtype.kind in "iuf" else ""
        raise TypeError(f"{expectation}. Received: dtype={array.dtype}{swapped}")
