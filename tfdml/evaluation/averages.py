"""Averages of per-query values over classes instead of queries."""

import numpy as np

from tfdml.checks import check, check_type
from tfdml.evaluation import inputs


def class_averages(values, labels):
    """Mean value of each class.

    Args:
        values: (n,) finite floats, such as one of `retrieval_scores_per_query`.
        labels: (n,) or (n, 1) integers of any size, the classes of the values.

    Returns:
        Three arrays: (C,) class ids, ascending; (C,) float64 means; (C,) numbers of values.

    Raises:
        TypeError: If `labels` are not integers or `values` not numbers.
        ValueError: If the shapes disagree, nothing is given, or a value is not finite.

    Example:
        >>> class_averages(np.array([1.0, 0.0, 1.0]), np.array([7, 7, 9]))
        (array([7, 9]), array([0.5, 1. ]), array([2, 1]))
    """
    values, labels = np.asarray(values), inputs.class_ids(labels)
    check_type(values.dtype.kind in "biuf", "`values` must be numbers", dtype=values.dtype.name)
    shapes = {"values.shape": values.shape, "labels.shape": labels.shape}
    check(values.shape == labels.shape, "`values` must have one number per label", **shapes)
    check(values.size > 0, "`values` must not be empty", **shapes)
    finite = np.isfinite(values)
    check(finite.all(), "`values` must be finite", values_not_finite=int(np.count_nonzero(~finite)))
    classes, ids, counts = np.unique(labels, return_inverse=True, return_counts=True)
    return classes, np.bincount(ids, values.astype(np.float64)) / counts, counts


def macro_average(values, labels):
    """Mean over classes of the class means: every class has the same weight, whatever its size.

    Args:
        values: As for `class_averages`.
        labels: As for `class_averages`.

    Returns:
        A Python float.

    Raises:
        TypeError: As `class_averages`.
        ValueError: As `class_averages`.

    Example:
        >>> macro_average(np.array([1.0, 0.0, 1.0]), np.array([7, 7, 9]))
        0.75
    """
    _, means, _ = class_averages(values, labels)
    return float(np.mean(means))
