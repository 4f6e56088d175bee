"""Embeddings of several levels of a network, side by side, and of several views of an image."""

import numpy as np

from tfdml.checks import check, check_integer, check_not_negative, check_type
from tfdml.evaluation.nearest_mean import unit_rows


def split_levels(embeddings, levels):
    """Splits (n, levels * dim) floats into a list of (n, dim), from the shallowest level on.

    Raises:
        TypeError, ValueError: If they are not floats, or the width is not a multiple of `levels`.
    """
    embeddings = np.asarray(embeddings)
    dtype = embeddings.dtype
    check_type(dtype.kind == "f", "`embeddings` must be floats", dtype=dtype.name)
    fits = embeddings.ndim == 2 and levels >= 1 and embeddings.shape[1] % levels == 0
    received = {"embeddings.shape": embeddings.shape, "levels": levels}
    check(fits, "`embeddings` must have the shape (n, levels * dim)", **received)
    return np.split(embeddings, levels, axis=1)


def weigh_levels(embeddings, level_weights):
    """Weighted ensemble of all levels, with rows of unit length; errors as for `split_levels`.

    Args:
        embeddings: (n, levels * dim) floats; each level is first scaled to unit length.
        level_weights: One number >= 0 per level, not all 0.

    Source:
        Yuan, Yang, Zhang. Hard-aware deeply cascaded embedding. ICCV 2017, section 3.3 and its
        released code, with (1, 2, 3) for Cars196, (1, 1, 2) for CUB-200-2011 and (1, 1, 1) for
        Stanford Online Products; only these with unit length reproduce its Tables 1 and 2.

    Example:
        >>> print(weigh_levels(np.array([[1.0, 0.0, 0.0, 1.0]]), (3, 4)))
        [[0.6 0.  0.  0.8]]
    """
    weights = list(level_weights)
    check_not_negative(**{f"level_weights[{i}]": weight for i, weight in enumerate(weights)})
    check(any(weights), "`level_weights` must not all be 0", level_weights=weights)
    parts = split_levels(embeddings, len(weights))
    shares = np.asarray(weights) / np.linalg.norm(weights)
    weighted = [share * unit_rows(part) for share, part in zip(shares, parts, strict=True)]
    return np.concatenate(weighted, axis=1).astype(parts[0].dtype)


def first_dims(embeddings, dims):
    """Cuts (n, dim) floats to their first numbers, for models trained to be cut short.

    Returns:
        (n, dims) floats, of unit length again if all rows had it.

    Source:
        Kusupati et al. Matryoshka representation learning. NeurIPS 2022, section 4.3.
    """
    (embeddings,) = split_levels(embeddings, 1)
    check_integer(1, dims=dims)
    width = embeddings.shape[1]
    check(dims <= width, "`dims` must not exceed the embedding", dims=dims, embedding_dim=width)
    cut = embeddings[:, :dims]
    unit = np.allclose(np.linalg.norm(embeddings, axis=1), 1.0, atol=1e-3)
    return unit_rows(cut).astype(embeddings.dtype) if unit else cut


def average_views(embeddings, levels=1):
    """Averages the embeddings of several views of each image, such as crops.

    Args:
        embeddings: (views, n, levels * dim) floats; each level is first scaled to unit length.
        levels: As for `split_levels`, with its errors.

    Returns:
        (n, levels * dim) of the same dtype, each level of unit length; 0 where the views cancel.

    Source:
        Krizhevsky, Sutskever, Hinton. ImageNet classification with deep convolutional neural
        networks. NIPS 2012, section 4.1; Yuan et al., as for `weigh_levels`, Table 3.
        Differs: the former averages predictions; the latter do not say how they merge crops.
    """
    embeddings = np.asarray(embeddings)
    received = {"embeddings.shape": embeddings.shape}
    expectation = "`embeddings` must have the shape (views, n, levels * dim)"
    check(embeddings.ndim == 3 and len(embeddings) > 0, expectation, **received)
    views = (np.stack(split_levels(view, levels)) for view in embeddings)
    totals = sum(unit_rows(view) for view in views)  # (levels, n, dim)
    return np.concatenate(unit_rows(totals), axis=1).astype(embeddings.dtype)
