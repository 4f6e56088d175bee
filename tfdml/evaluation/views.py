"""Averages of the embeddings of several views of an image, such as crops."""

import numpy as np

from tfdml.checks import check
from tfdml.evaluation.levels import split_levels
from tfdml.evaluation.transfer import unit_rows


def average_views(embeddings, levels=1):
    """Averages the embeddings of several views of each image, such as crops.

    The embeddings of the views are scaled to unit length, averaged, and scaled again, separately
    for each level of a network with several exits.

    Args:
        embeddings: (views, n, levels * dim) floats.
        levels: Number of embeddings side by side.

    Returns:
        (n, levels * dim) of the same dtype, each level of unit length; 0 where the views cancel.

    Raises:
        TypeError: If they are not floats.
        ValueError: If they have another shape.

    Source:
        Krizhevsky, Sutskever, Hinton. ImageNet classification with deep convolutional neural
        networks. NIPS 2012, section 4.1, which averages predictions; Yuan, Yang, Zhang. Hard-aware
        deeply cascaded embedding. ICCV 2017, Table 3, which uses multi-crop embeddings but does not
        say how they are merged.

    Example:
        >>> print(average_views(np.array([[[6.0, 0.0]], [[0.0, 2.0]]])).round(4))
        [[0.7071 0.7071]]
    """
    embeddings = np.asarray(embeddings)
    check(
        embeddings.ndim == 3 and len(embeddings) > 0,
        "`embeddings` must have the shape (views, n, levels * dim)",
        **{"embeddings.shape": embeddings.shape},
    )
    of_views = [split_levels(view, levels) for view in embeddings]
    averages = [
        unit_rows(np.mean([unit_rows(rows) for rows in of_level], axis=0))
        for of_level in zip(*of_views, strict=True)
    ]
    return np.concatenate(averages, axis=1).astype(embeddings.dtype)
