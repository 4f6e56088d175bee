"""Density of classes: the spread of their embeddings around their mean."""

import numpy as np

from tfdml.evaluation import inputs
from tfdml.evaluation.nearest_mean import rows_by_class, unit_rows


def class_density(embeddings, labels):
    """Mean squared distance of the unit rows of each class to their mean: 0 dense, 1 sparse.

    For unit rows it is 1 - |mean|². A class of a single row has 0; zero rows stay zero.

    Arguments and errors are those of `class_means`; rows may have any length.

    Returns:
        (classes,) float64 in [0, 1], in the order of the class ids.

    Source:
        Li, Yao, Chao, Chen, Mei. Density adaptivity in deep metric learning. 2019, section III.
        `tfdml.losses.DensityAdaptiveLoss` takes those of a network before training as initial
        densities.

    Example:
        >>> rows = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 3.0], [0.0, 5.0]])
        >>> class_density(rows, np.array([0, 0, 1, 1])).tolist()
        [0.5, 0.0]
    """
    embeddings, labels = inputs.embeddings_and_labels(embeddings, labels)
    units = unit_rows(embeddings)
    return np.array([np.var(units[rows], axis=0).sum() for rows in rows_by_class(labels)[1]])
