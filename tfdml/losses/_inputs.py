"""Labels, embeddings and weights of rows, as users pass them, checked and as tensors."""

import keras
import numpy as np
from keras import ops

from tfdml import pairwise
from tfdml.checks import Bare, check, check_shapes, check_type, conversion
from tfdml.layers import gathering

_WIDEST_ID = "int32" if keras.backend.backend() == "jax" else "int64"
_SETS = "`labels` of the shape (batch, num_labels) must be 0 or 1"


def as_labels(labels, embeddings, traits):
    """Labels as a tensor: (batch,) ids, or (batch, num_labels) of 0 and 1."""
    if not ops.is_tensor(labels):
        labels = np.asarray(labels)
        check_labels(labels, embeddings, traits)
        ids_matter = traits.compares_batches or traits.num_classes is not None
        if not (ids_matter or _are_sets(labels, traits)):
            # Renumbered, as JAX truncates integers to 32 bits.
            labels = np.unique(labels, return_inverse=True)[1].reshape(labels.shape)
        labels = labels.astype(_WIDEST_ID if traits.compares_batches else "int32")
        labels = ops.convert_to_tensor(labels)
    if gathering.builds_for_replicas():
        labels = ops.cast(labels, "int64")
    check_integers(labels, embeddings)
    dtype = _dtype(labels)
    if dtype not in ("int32", "int64"):  # TensorFlow accepts no others as indices
        labels = ops.cast(labels, "int64" if dtype in ("uint32", "uint64") else "int32")
    if _are_sets(labels, traits):
        return labels
    expected = "`labels` must have the shape (batch,) or (batch, 1)"
    if traits.takes_label_sets:
        expected += ", or (batch, num_labels) for several labels a row"
    expected += conversion("labels", labels.shape, dtype)
    check_shapes(_is_column(labels), expected, labels=labels)
    return ops.reshape(labels, (-1,))


def asserted_labels(labels, traits):
    """Labels, 0 in place of those of no class, and whether all are valid; None if all are."""
    if len(labels.shape) == 2:
        valid = ops.all((labels == 0) | (labels == 1))
        return labels, pairwise.asserted(valid, _SETS, labels)
    if traits.num_classes is None:
        return labels, None
    known = (labels >= 0) & (labels < traits.num_classes)
    expectation = f"labels must be from 0 to {traits.num_classes - 1}"
    return ops.where(known, labels, 0), pairwise.asserted(ops.all(known), expectation, labels)


def as_embeddings(embeddings):
    if not ops.is_tensor(embeddings):
        embeddings = np.asarray(embeddings)
    dtype = _dtype(embeddings)
    check_type("float" in dtype, "`embeddings` must be floats", dtype=Bare(dtype))
    expectation = "`embeddings` must have the shape (batch, dim)"
    check_shapes(len(embeddings.shape) == 2, expectation, embeddings=embeddings)
    return ops.convert_to_tensor(embeddings, dtype="float64" if dtype == "float64" else "float32")


def as_weights(sample_weight, embeddings):
    """Weights of rows as (batch,) numbers of the dtype of the embeddings."""
    weights = ops.convert_to_tensor(sample_weight, dtype=embeddings.dtype)
    rows = (embeddings.shape[0], None)
    expectation = "`sample_weight` must be (batch,) or (batch, 1), a number for each row"
    valid = _is_column(weights) and (weights.shape[0] in rows or rows[0] is None)
    check_shapes(valid, expectation, sample_weight=weights, embeddings=embeddings)
    return ops.reshape(weights, (-1,))


def check_labels(labels, embeddings, traits):
    """Raises an error for an array of labels that are not integers or beyond the classes."""
    check_integers(labels, embeddings)
    are_sets = _are_sets(labels, traits)
    count = 2 if are_sets else traits.num_classes
    if count is not None and labels.size:
        expectation = f"`labels` must be from 0 to {count - 1}, the classes of the loss"
        check(
            labels.min() >= 0 and labels.max() < count,
            _SETS if are_sets else expectation,
            labels=Bare(f"{labels.min()} to {labels.max()}"),
        )


def check_integers(labels, embeddings=None):
    """Raises a TypeError unless labels are integers, which says how to convert others."""
    dtype = _dtype(labels)
    expected = "`labels` must be integers, one class id per row"
    swapped = embeddings is not None and "int" in _dtype(embeddings)
    advice = "" if swapped else conversion("labels", np.shape(labels), dtype)
    hint = " (arguments swapped?)" if swapped else ""
    check_type("int" in dtype, expected + advice, dtype=Bare(dtype + hint))


def ids_of_images(labels, num_classes):
    """Labels of training images as (n,) int64 ids, and the number of classes, checked."""
    labels = np.asarray(labels)
    check_integers(labels)
    expectation = "`labels` must be one class id per image, (n,)"
    check_shapes(labels.ndim == 1 and labels.size, expectation, labels=labels)
    check(labels.min() >= 0, "`labels` must be >= 0", labels=int(labels.min()))
    classes = int(labels.max()) + 1
    expectation = "the loss must know as many classes as there are to train"
    check(num_classes in (None, classes), expectation, num_classes=num_classes, classes=classes)
    return labels.astype("int64"), classes


def _dtype(values):
    """Name of the dtype of an array, or of a tensor of any backend."""
    if ops.is_tensor(values):
        return keras.backend.standardize_dtype(values.dtype)
    return str(np.asarray(values).dtype)


def _are_sets(labels, traits):
    """Whether labels are several a row, of 0 and 1, rather than ids."""
    return traits.takes_label_sets and len(labels.shape) == 2 and labels.shape[1] != 1


def _is_column(values):
    return len(values.shape) == 1 or (len(values.shape) == 2 and values.shape[1] == 1)
