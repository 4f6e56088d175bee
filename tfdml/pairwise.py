"""Distances, masks and masked reductions over the pairs of a batch.

The building blocks of the losses. Every function uses `keras.ops`, holds at most one number per
pair of rows, and has finite values and gradients for duplicate rows, zero rows and batches without
any valid pair. NaN propagates: it fails every condition.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

tf: Any = None  # on JAX and PyTorch
if keras.backend.backend() == "tensorflow":
    import tensorflow as tf

_SHORTEST = 1e-30  # rows below this have no direction: 1 / norm would overflow float32
NOBODY = -(2**31)  # label of a reference that pairs with no row
_MASKED = 1e30  # used for infinity, whose gradient would be NaN


def normalize(rows):
    """Scales (..., dim) rows of any finite length to length 1; zero rows stay zero."""
    largest = ops.stop_gradient(ops.max(ops.abs(rows), axis=-1, keepdims=True))
    short = largest <= _SHORTEST
    # Dividing by the largest entry keeps the squares in range and preserves the direction.
    scaled = ops.where(short, 0.0, rows) / ops.where(short, 1.0, largest)
    squared_norm = ops.sum(ops.square(scaled), axis=-1, keepdims=True)
    return scaled * ops.rsqrt(ops.where(short, 1.0, squared_norm))


def squared_distances(rows, references=None):
    """Squared Euclidean distances, `D[i, j] = |rows[i] - references[j]|²`, by a matrix product.

    Rows are centred first, which reduces rounding errors. Values within rounding error of 0 become
    0, with zero gradient.

    Args:
        rows: (..., n, dim) floats, float32 or float64.
        references: (..., m, dim) floats; `rows` itself, or None, for all pairs of the rows.

    Returns:
        (..., n, m) floats >= 0, with a zero diagonal among the rows themselves.
    """
    among_themselves = references is None or references is rows
    references = rows if among_themselves else references
    # Not of the references: a memory that is not full has rows of zeros.
    center = ops.stop_gradient(ops.mean(rows, axis=-2, keepdims=True))
    references = references - center
    rows = references if among_themselves else rows - center
    norms, reference_norms = (ops.sum(ops.square(each), axis=-1) for each in (rows, references))
    sums = norms[..., :, None] + reference_norms[..., None, :]
    # Not `ops.matmul`, which on PyTorch turns float64 into float32.
    squared = sums - 2.0 * (rows @ ops.swapaxes(references, -1, -2))
    eps = float(np.finfo(keras.backend.standardize_dtype(rows.dtype)).eps)
    # The bound of dim roundings; dim may be unknown when the graph is built.
    resolution = eps * (4.0 + ops.sqrt(ops.cast(ops.shape(rows)[-1], rows.dtype)))
    coincident = squared <= resolution * sums
    if among_themselves:
        index = ops.arange(ops.shape(rows)[-2])
        coincident = coincident | (index[:, None] == index[None, :])
    return ops.where(coincident, 0.0, squared)


def closeness(rows, references):
    """(n, m) numbers that order the references of each row, the nearest highest; no gradient.

    `(|rows[i]|² - D[i, j]) / 2`, both from the mean of the rows: half the work of distances.
    """
    rows, references = ops.stop_gradient(rows), ops.stop_gradient(references)
    center = ops.mean(rows, axis=0, keepdims=True)
    rows, references = rows - center, references - center
    return rows @ ops.transpose(references) - ops.sum(ops.square(references), axis=1) / 2.0


def highest(numbers):
    """(n,) positions of the highest number of each row (n, m), any of equal ones."""
    # `ops.argmax` takes several times as long and twice the memory, to tell 0 from -0.
    return ops.top_k(numbers, 1)[1][:, 0]


def distances(rows, references=None):
    """Euclidean distances, as `squared_distances`, with zero gradient where they are 0."""
    return root(squared_distances(rows, references))


def root(squared):
    """Square roots, with zero gradient where they are 0."""
    # The inner `where` keeps the infinite slope at 0 out of the gradient.
    return ops.where(squared == 0, 0.0, ops.sqrt(ops.where(squared == 0, 1.0, squared)))


def off_diagonal(rows):
    """(n, n) booleans, true off the diagonal, for `rows` of shape (n, ...)."""
    index = ops.arange(ops.shape(rows)[0])
    return index[:, None] != index[None, :]


def unordered_pairs(rows):
    """The pairs of different rows, each once, `i < j`: two vectors of n (n - 1) / 2 integers."""
    # With rows arranged in a circle: pairs at distance 1 come first, then distance 2, and so on.
    count = ops.shape(rows)[0]
    pair = ops.arange(count, count * (count + 1) // 2)
    one, other = pair % count, (pair + pair // count) % count
    return ops.minimum(one, other), ops.maximum(one, other)


def entries(matrix, rows, columns):
    """(p,) entries of an (n, m) matrix at p rows and columns, integers of one dtype."""
    return ops.take(ops.reshape(matrix, (-1,)), rows * ops.shape(matrix)[1] + columns)


def positive_mask(labels):
    """(n, n) booleans: same class, and not the row itself. `labels` is (n,) integers."""
    return (labels[:, None] == labels[None, :]) & off_diagonal(labels)


def negative_mask(labels):
    """(n, n) booleans: different classes. `labels` is (n,) integers."""
    return labels[:, None] != labels[None, :]


def masks_against(labels, reference_labels, self_positions):
    """The positive and the negative mask of anchors against references.

    Args:
        labels: (n,) integers, of the anchors.
        reference_labels: (m,) integers; `NOBODY` where a reference is neither.
        self_positions: (n,) integers, the reference that is the anchor itself, which is no
            positive; -1 if none is.

    Returns:
        Two (n, m) boolean arrays.
    """
    same = labels[:, None] == reference_labels[None, :]
    negative = ~same
    if labels is not reference_labels:
        negative = negative & (reference_labels != NOBODY)[None, :]
    return same & is_other(reference_labels, self_positions), negative


def is_other(references, self_positions):
    """(n, m) booleans: whether a reference is not the row itself, at `self_positions`, (n,)."""
    index = ops.arange(ops.shape(references)[0], dtype=self_positions.dtype)
    return index[None, :] != self_positions[:, None]


def label_overlap(labels, reference_labels, dtype):
    """(n, m) floats: intersection over union of the label sets of rows, 0 without labels."""
    labels, reference_labels = (ops.cast(sets, dtype) for sets in (labels, reference_labels))
    shared = labels @ ops.transpose(reference_labels)
    sizes, reference_sizes = (ops.sum(sets, axis=1) for sets in (labels, reference_labels))
    either = sizes[:, None] + reference_sizes[None, :] - shared
    return shared / ops.maximum(either, 1.0)


def class_means(labels, rows):
    """The mean of the class of each row, (n, dim), and the number of rows of that class, (n,)."""
    same = ops.cast(labels[:, None] == labels[None, :], rows.dtype)
    sizes = ops.sum(same, axis=1)
    return same @ rows / sizes[:, None], sizes


def masked_sum(values, mask, axis=None):
    """Sum of `values` where `mask`, 0 if there are none; other values get no gradient."""
    return ops.sum(ops.where(mask, values, 0.0), axis=axis)


def mean(values, weights=None):
    """Mean of `values`, times `weights` if given. `ops.mean` drops to float32 on JAX."""
    values = values if weights is None else values * weights
    return ops.sum(values) / ops.cast(ops.size(values), values.dtype)


def masked_mean(values, mask):
    """Mean of `values` where `mask`, 0 if there are none; other values get no gradient."""
    count = ops.sum(ops.cast(mask, values.dtype))
    return masked_sum(values, mask) / ops.maximum(count, 1.0)


def masked_max(values, mask, axis):
    """Largest of `values` where `mask`, along `axis`; -1e30 if there are none."""
    return ops.max(ops.where(mask, values, -_MASKED), axis=axis)


def masked_min(values, mask, axis):
    """Smallest of `values` where `mask`, along `axis`; 1e30 if there are none."""
    return -masked_max(-values, mask, axis)


def masked_logsumexp(values, mask, axis):
    """log Σ exp(values) where `mask`, along `axis`; as `masked_max` if there are none."""
    return ops.logsumexp(ops.where(mask, values, -_MASKED), axis=axis)


def asserted(condition, expectation, received):
    """A boolean tensor, which must be true; TensorFlow without XLA raises if it is not."""
    if tf is not None:
        values = [received]
        if len(received.shape):
            values = [ops.min(received), "to", ops.max(received)]
        tf.debugging.Assert(condition, [f"{expectation}. Received:", *values])
    return condition
