import importlib
import numbers
import os

import keras
import numpy as np

from tfdml.checks import (
    check,
    check_integer,
    check_positive,
    check_share,
    check_type,
    unknown_name,
)
from tfdml.layers import MirrorAverage, UnitLength
from tfdml.models import BACKBONES


def build_embedder(
    backbone,
    embedding_dim=128,
    *,
    input_shape,
    weights=None,
    normalize=True,
    dropout=0.0,
    mirror=False,
):
    """A network from images to embeddings, its preprocessing inside.

    Args:
        backbone: One of `tfdml.models.BACKBONES`.
        embedding_dim: Width of the embedding.
        input_shape: (height, width, channels) of the images.
        weights: None for random weights, `"imagenet"`, or the path of a weights file.
        normalize: Whether embeddings are scaled to unit length. Losses that train on raw rows
            (`loss.normalize` is False) retrieve by raw rows.
        dropout: Share of the backbone's features dropped in training, 0 to below 1.
        mirror: Whether, outside training, the features of an image and of its mirror image are
            averaged, by `tfdml.layers.MirrorAverage`: for things seen from either side, in twice
            the time.

    Returns:
        A functional `keras.Model` from (batch, height, width, channels) floats in [0, 255] to
        (batch, embedding_dim) float32, which stays float32 under any mixed-precision policy. Its
        new layer is called `embedding`.

    Raises:
        TypeError: If `embedding_dim` is no integer, `dropout` no number or `mirror` no bool.
        ValueError: If an argument is out of range or the backbone unknown.
        FileNotFoundError: If `weights` is a path at which there is no file.
        OSError: If `"imagenet"` cannot be downloaded.
    """
    if backbone not in BACKBONES:
        raise ValueError(unknown_name("backbone", backbone, BACKBONES))
    check_integer(embedding_dim=embedding_dim)
    check_positive(embedding_dim=embedding_dim)
    check(
        np.shape(input_shape) == (3,)
        and all(isinstance(n, numbers.Integral) and n > 0 for n in input_shape),
        "`input_shape` must be (height, width, channels)",
        input_shape=input_shape,
    )
    check_share(dropout=dropout)
    check_type(isinstance(mirror, bool), "`mirror` must be a bool", mirror=mirror)
    if weights not in (None, "imagenet") and not os.path.isfile(weights):
        raise FileNotFoundError(
            f"`weights` must be an existing file. Received: weights={weights!r}"
        )
    build_backbone = getattr(importlib.import_module(f"tfdml.models.{backbone}"), backbone)
    inputs = keras.Input(tuple(map(int, input_shape)), name="images")
    features = build_backbone(inputs, weights=weights)
    if mirror:
        network = keras.Model(inputs, features, name=f"{backbone}_features")
        features = MirrorAverage(network, name="mirror_average")(inputs)
    if dropout:
        features = keras.layers.Dropout(float(dropout), name="dropout")(features)
    embeddings = keras.layers.Dense(int(embedding_dim), dtype="float32", name="embedding")(features)
    if normalize:
        embeddings = UnitLength(dtype="float32", name="unit_length")(embeddings)
    return keras.Model(inputs, embeddings, name=f"{backbone}_embedder")
