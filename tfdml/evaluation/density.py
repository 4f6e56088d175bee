"""Density of classes: the spread of their embeddings around their mean."""

import numpy as np

from tfdml.evaluation import inputs


def class_density(embeddings, labels):
    """Mean squared distance of the unit rows of each class to their mean: 0 dense, 1 sparse.

    For unit rows it is 1 - |mean|². A class of a single row has 0; zero rows stay zero.

    Args:
        embeddings: (n, dim) floats, finite, of any length: each row is scaled to unit length.
        labels: (n,) or (n, 1) integers of any size, one class id per row.

    Returns:
        (classes,) float64 in [0, 1], in the order of the class ids.

    Raises:
        TypeError: If `labels` are not integers or `embeddings` not floats.
        ValueError: If the shapes disagree, an input is empty or not finite.

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
    order = np.argsort(labels, kind="stable")
    _, first, counts = np.unique(labels[order], return_index=True, return_counts=True)
    densities = np.empty(len(first))
    for place, (start, count) in enumerate(zip(first, counts, strict=True)):
        rows = embeddings[order[start : start + count]].astype(np.float64)
        largest = np.abs(rows).max(axis=1, keepdims=True)
        rows /= np.where(largest > 0, largest, 1.0)
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        rows /= np.where(norms > 0, norms, 1.0)
        densities[place] = np.mean(np.sum(np.square(rows - rows.mean(axis=0)), axis=1))
    return densities
