import importlib
import os

import keras

from tfdml.checks import check, unknown_name
from tfdml.layers import UnitLength
from tfdml.models import BACKBONES


def build_embedder(
    backbone, embedding_dim=128, *, input_shape, weights=None, normalize=True, dropout=0.0
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

    Returns:
        A functional `keras.Model` from (batch, height, width, channels) floats in [0, 255] to
        (batch, embedding_dim) float32, which stays float32 under any mixed-precision policy. Its
        new layer is called `embedding`.

    Raises:
        ValueError: If an argument is out of range or the backbone unknown.
        FileNotFoundError: If `weights` is a path at which there is no file.
    """
    if backbone not in BACKBONES:
        raise ValueError(unknown_name("backbone", backbone, BACKBONES))
    check(
        isinstance(embedding_dim, int) and embedding_dim > 0,
        "`embedding_dim` must be a positive integer",
        embedding_dim=embedding_dim,
    )
    check(
        len(input_shape) == 3 and all(isinstance(n, int) and n > 0 for n in input_shape),
        "`input_shape` must be (height, width, channels)",
        input_shape=input_shape,
    )
    check(0 <= dropout < 1, "`dropout` must be >= 0 and < 1", dropout=dropout)
    if weights not in (None, "imagenet") and not os.path.isfile(weights):
        raise FileNotFoundError(
            f"`weights` must be an existing file. Received: weights={weights!r}"
        )
    build_backbone = getattr(importlib.import_module(f"tfdml.models.{backbone}"), backbone)
    inputs = keras.Input(tuple(input_shape), name="images")
    features = build_backbone(inputs, weights=weights)
    if dropout:
        features = keras.layers.Dropout(dropout, name="dropout")(features)
    embeddings = keras.layers.Dense(embedding_dim, dtype="float32", name="embedding")(features)
    if normalize:
        embeddings = UnitLength(dtype="float32", name="unit_length")(embeddings)
    return keras.Model(inputs, embeddings, name=f"{backbone}_embedder")
