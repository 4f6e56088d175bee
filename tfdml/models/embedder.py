import importlib
import warnings

import keras

from tfdml import evaluation
from tfdml.checks import (
    check,
    check_bool,
    check_image_size,
    check_integer,
    check_keras,
    check_one_of,
    check_share,
)
from tfdml.layers import Dropout, MirrorAverage, UnitLength
from tfdml.models.backbones import (
    BACKBONES,
    MOST_DIMENSIONS,
    POOLED,
    POOLINGS,
    check_colour,
    check_weights,
    is_pretrained,
    most_levels,
)
from tfdml.models.hub import named_features


def build_embedder(
    backbone,
    embedding_dim=128,
    *,
    input_shape,
    weights=None,
    normalize=True,
    levels=1,
    dropout=0.0,
    mirror=False,
    pooling=None,
    freeze_batch_norm=None,
):
    """Builds a network from images to embeddings, including its preprocessing.

    Args:
        backbone: One of `tfdml.models.BACKBONES`; `hub:PRESET`, a name, handle or folder of
            KerasHub, with its weights and scaling of colours; or `module:function`, called with
            (height, width, channels), which returns a `keras.Model` from images in [0, 255].
        embedding_dim: Width of the embedding; None to return the features (requires `levels=1`).
        input_shape: (height, width, channels) of the images.
        weights: None for random weights, `"imagenet"`, or the path of a weights file.
        normalize: Whether embeddings are scaled to unit length. Use False for losses that train on
            raw rows (`loss.normalize` is False).
        levels: Number of embeddings per image: 1, or 2 or 3 with early exits of the backbone. They
            are concatenated from the shallowest to the deepest, each of `embedding_dim` numbers and
            each scaled separately; the last one is that of the final features.
        dropout: Share of the features dropped in training, 0 to below 1, or one for each level.
        mirror: Whether to average the features of an image and of its mirror image, except in
            training, by `tfdml.layers.MirrorAverage`: for objects seen from either side, in twice
            the time.
        pooling: `"average"`, or `"average+max"` for the sum of the averages and the maxima of the
            last maps, as in the code of Proxy-Anchor; for backbones that end in global average
            pooling. Of presets and functions also `"gem"` (`tfdml.layers.GeneralizedMean`), and of
            tokens `"class"` and `"class+average"`. None for the class token of those that have one,
            else the average.
        freeze_batch_norm: Whether batch normalisation keeps its statistics, scales and offsets in
            training; None for with trained weights only: the statistics of batches of a few classes
            differ from those of test images.

    Returns:
        A functional `keras.Model` from (batch, height, width, channels) floats in [0, 255] to
        (batch, levels * embedding_dim) float32, which stays float32 under any mixed-precision
        policy. Names of its new layers begin with `embedding`, those of the exits with `exit`.

    Raises:
        TypeError: If `embedding_dim` or `levels` is not an integer, `dropout` not a number or
            `mirror` or `freeze_batch_norm` not a bool.
        ImportError: If the backbone needs KerasHub, which is not installed.
        ValueError: If an argument is out of range, the backbone unknown or without this pooling,
            the preset cannot be loaded, its patches do not divide the images, or Keras is set to
            `channels_first`.
        FileNotFoundError: If `weights` is a path without a file, or `"imagenet"` for a backbone
            whose published weights must be converted first; the message says how.
        OSError: If `"imagenet"` cannot be downloaded.
    """
    most = most_levels(backbone)
    check_keras("image_data_format")
    if embedding_dim is not None:
        check_integer(1, embedding_dim=embedding_dim)
        expectation = f"`embedding_dim` must be <= {MOST_DIMENSIONS:,}"
        check(embedding_dim <= MOST_DIMENSIONS, expectation, embedding_dim=embedding_dim)
    check_image_size(input_shape=input_shape)
    check_integer(levels=levels)
    check(1 <= levels <= most, f"`levels` of {backbone} must be from 1 to {most}", levels=levels)
    expectation = "features without an embedding (`embedding_dim` None) require 1 level"
    check(embedding_dim is not None or levels == 1, expectation, levels=levels)
    shares = dropout_of_levels(dropout, levels)
    frozen = is_pretrained(backbone, weights) if freeze_batch_norm is None else freeze_batch_norm
    check_bool(mirror=mirror, freeze_batch_norm=frozen)
    check_pooling(backbone, pooling)
    check_weights(backbone, weights)
    check_colour(input_shape, weights, backbone)
    inputs = keras.Input(tuple(map(int, input_shape)), name="images")
    if backbone not in BACKBONES:
        found, name = named_features(backbone, inputs, pooling)
        features = [found]
    else:
        name = backbone
        module = importlib.import_module(f"tfdml.models.{BACKBONES[backbone][0]}")
        features = getattr(module, backbone)(inputs, weights=weights, levels=int(levels))
        if pooling == "average+max":
            features[-1] = _with_maxima(inputs, features[-1])
    network = keras.Model(inputs, features, name=f"{name}_features")
    for layer in network._flatten_layers():
        if isinstance(layer, keras.layers.BatchNormalization):
            # `training=False` would not do: Keras overrides it when the whole model trains.
            layer.trainable = not frozen
    if mirror:
        features = MirrorAverage(network, name="mirror_average")(inputs)
    embeddings = []
    for level, (x, share) in enumerate(zip(features, shares, strict=True), start=1):
        suffix = "" if levels == 1 else str(level)
        embeddings.append(_embedding(x, embedding_dim, float(share), normalize, suffix))
    return _side_by_side(inputs, embeddings, f"{name}_embedder")


def build_head(width, embedding_dim, *, normalize=True, dropout=0.0):
    """An embedder of features, (batch, width) floats; other arguments as of `build_embedder`."""
    inputs = keras.Input((width,), name="features")
    x = _embedding(inputs, embedding_dim, dropout, normalize)
    return keras.Model(inputs, x, name="features_embedder")


def _embedding(x, embedding_dim, dropout, normalize, suffix=""):
    """The layers behind the features of a level."""
    if dropout:
        x = Dropout(dropout, name=f"dropout{suffix}")(x)
    name = f"embedding{suffix}"
    if embedding_dim is None:
        x = keras.layers.Identity(dtype="float32", name=name)(x)
    else:
        x = keras.layers.Dense(int(embedding_dim), dtype="float32", name=name)(x)
    if normalize:
        x = UnitLength(dtype="float32", name=f"unit_length{suffix}")(x)
    return x


def first_levels(embedder, levels):
    """The shallow part of an embedder of several levels: its first exits and nothing deeper.

    Args:
        embedder: An embedder of `build_embedder` with `levels` of 2 or 3, trained or not.
        levels: Number of levels to keep, from the shallowest.

    Returns:
        A functional `keras.Model` from the same images to (batch, levels * embedding_dim) floats,
        which shares the weights.

    Raises:
        TypeError: If `levels` is not an integer.
        ValueError: If the embedder has fewer levels, or only one.
    """
    check_integer(levels=levels)
    existing = number_of_levels(embedder)
    check(existing > 1, "`embedder` must have 2 levels or more", levels=existing)
    check(1 <= levels <= existing, f"`levels` must be from 1 to {existing}", levels=levels)
    names = {layer.name for layer in embedder.layers}
    shallow = range(1, levels + 1)
    if "mirror_average" in names:
        network = embedder.get_layer("mirror_average").layer
        network = keras.Model(network.input, network.output[:levels], name=network.name)
        features = MirrorAverage(network, name="mirror_average")(embedder.input)
    else:
        features = [embedder.get_layer(f"embedding{level}").input for level in shallow]
    embeddings = []
    for level, x in zip(shallow, features, strict=True):
        for name in (f"embedding{level}", f"unit_length{level}"):
            x = embedder.get_layer(name)(x) if name in names else x
        embeddings.append(x)
    return _side_by_side(embedder.input, embeddings, embedder.name)


def first_dims(embedder, dims):
    """An embedder of the first numbers of its embeddings, trained to be cut short.

    Args:
        embedder: A `keras.Model` to (batch, dim) floats, of one level.
        dims: Numbers to keep, 1 to dim.

    Returns:
        A functional `keras.Model` from the same images to (batch, dims) floats, of unit length if
        the embedder ends in `UnitLength`. It shares the weights.

    Raises:
        TypeError: If `dims` is not an integer.
        ValueError: If `dims` is out of range, or the embedder has several levels.
    """
    check_integer(1, dims=dims)
    check(number_of_levels(embedder) == 1, "`embedder` must have one level", dims=dims)
    width = embedder.output_shape[-1]
    check(dims <= width, "`dims` must not exceed the embedding", dims=dims, embedding_dim=width)
    return _ending_in(embedder, embedder.output[:, :dims], "unit_length_of_first")


def with_projection(embedder, kernel, bias):
    """An embedder with a linear layer behind it, such as `tfdml.evaluation.fit_pca` finds.

    Args:
        embedder: A `keras.Model` to (batch, dim) floats.
        kernel: (dim, dims) floats.
        bias: (dims,) floats.

    Returns:
        A functional `keras.Model` from the same images to (batch, dims) floats, of unit length if
        the embedder ends in `UnitLength`. It shares the weights.
    """
    layer = keras.layers.Dense(len(bias), dtype="float32", name="projection")
    rows = layer(embedder.output)
    layer.set_weights([kernel, bias])
    return _ending_in(embedder, rows, "unit_length_of_projection")


def _ending_in(embedder, rows, name):
    """The embedder of rows behind its own, of unit length if these are."""
    if isinstance(embedder.layers[-1], UnitLength):
        rows = UnitLength(dtype="float32", name=name)(rows)
    return keras.Model(embedder.input, rows, name=embedder.name)


def backbone_of(embedder):
    """The part of an embedder before its embedding: images to features.

    Args:
        embedder: An embedder of `build_embedder`, trained or not.

    Returns:
        A functional `keras.Model` from the same images to the (batch, features) floats of the
        deepest level. It shares the weights.
    """
    features = _head(embedder)[0].input
    return keras.Model(embedder.input, features, name=f"{embedder.name}_backbone")


def head_of(embedder):
    """The part of an embedder of one level behind its `backbone_of`, of shared weights."""
    layers = _head(embedder)
    x = inputs = keras.Input(layers[0].input.shape[1:], name="features")
    for layer in layers:
        x = layer(x)
    return keras.Model(inputs, x, name=f"{embedder.name}_head")


def start_head(embedder, features):
    """Makes the embeddings of an embedder the first principal components of its features.

    A head that starts at random ranks worse than the features, and has to learn first what they
    know. One of more numbers than the features, or no fewer than their rows, stays as it is.
    """
    layer = embedder.get_layer("embedding")
    width, dim = layer.kernel.shape
    if dim <= min(width, len(features) - 1):
        layer.set_weights(evaluation.fit_pca(features, dim))


def _head(embedder):
    """The layers of an embedder behind its deepest features, in order."""
    levels = number_of_levels(embedder)
    suffix = "" if levels == 1 else str(levels)
    names = {f"{name}{suffix}" for name in ("dropout", "embedding", "unit_length")}
    return [layer for layer in embedder.layers if layer.name in names]


def number_of_levels(embedder):
    """Number of embeddings per image that an embedder of `build_embedder` concatenates."""
    names = {layer.name for layer in embedder.layers}
    return max(1, sum(f"embedding{level}" in names for level in (1, 2, 3)))


def warn_of_unit_range(embedder, images):
    """Warns of (n, ...) images in [0, 1] for an embedder of `build_embedder`."""
    takes_pixels = embedder.inputs[0].name == "images" and embedder.name.endswith("_embedder")
    if not takes_pixels or images.dtype.kind != "f":
        return
    largest = images[:256].max(initial=0)  # show whether all are in [0, 1]
    if 0 < largest <= 1:
        warnings.warn(
            f"the images are in [0, 1] (largest value: {largest:g}), but networks of "
            "`build_embedder` take [0, 255]: multiply them by 255",
            stacklevel=3,
        )


def check_pooling(backbone, pooling):
    """Raises a ValueError for a pooling that is unknown, or not of this backbone."""
    if backbone not in BACKBONES or pooling is None:
        return  # others say what they have once they are loaded
    check_one_of(POOLINGS, pooling=pooling)
    expectation = f"`pooling` must be 'average' for {backbone}, which has no global pooling"
    check(pooling == "average" or backbone in POOLED, expectation, pooling=pooling)


def _with_maxima(inputs, features):
    """The features with the maxima of the maps added to their averages."""
    *_, before, last = keras.Model(inputs, features).layers
    is_pool = isinstance(last, keras.layers.GlobalAveragePooling2D)
    pool = last if is_pool else before  # ConvNeXt normalises what it pools
    maxima = keras.layers.GlobalMaxPooling2D(name="max_pool")(pool.input)
    x = keras.layers.Add(name="average_and_max")([pool.output, maxima])
    return x if is_pool else last(x)


def dropout_of_levels(dropout, levels):
    """The share of the features to drop at each level, checked, from one share or a list."""
    shares = list(dropout) if isinstance(dropout, (list, tuple)) else [dropout] * levels
    expectation = "`dropout` must be one number, or one for each level"
    check(len(shares) == levels, expectation, dropout=dropout, levels=levels)
    for share in shares:
        check_share(dropout=share)
    return shares


def _side_by_side(inputs, embeddings, name):
    if len(embeddings) > 1:
        embeddings = [keras.layers.Concatenate(dtype="float32", name="levels")(embeddings)]
    return keras.Model(inputs, embeddings[0], name=name)
