import math
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from pipelines.datasets.image_list import IMAGE_SIZE, ImageList, checked_dataset, first_half
from pipelines.loading import on_all_cores
from pipelines.preprocessing import Augmentation
from tfdml.checks import check, check_fits
from tfdml.images.decoding import decode, resize
from tfdml.quiet import progress

SIDE = 256  # pixels that larger images, and images of several sizes, are resized to
PARTS = ("train", "validation", "test")


def load(data_dir=None, skip_invalid=False, training=True, *, name):
    """Any labelled image set of TensorFlow Datasets, its classes split into halves.

    Its splits named train, validation and test are merged; a set without them must have a single
    split. The first half of the classes (rounded down) is for training: for `caltech_birds2011` and
    `cars196` this is the split of the papers. Images without a label (-1) are left out.

    All images are held in memory: unchanged if all have one size up to 256 x 256, otherwise resized
    to 256 x 256 pixels, 196,608 bytes each; while they are read, twice. The name may have a config
    or version, such as `mnist:3.*.*`.
    """
    builder = prepared(name, data_dir)
    features = builder.info.features
    keys = _keys(name, builder.info)
    shape = features[keys[0]].shape
    as_they_are = None not in shape and max(shape[:2]) <= SIDE
    size = (SIDE, SIDE, shape[2])
    options: dict[str, Any] = {"image_size": (*IMAGE_SIZE[:2], shape[2])}
    if as_they_are:
        size, options = shape, {"image_size": shape, "augmentation": Augmentation()}
    images, labels = _read(builder, keys, size)
    names = dict(enumerate(features[keys[1]].names or []))
    listed = ImageList(images, labels, names, parts=first_half(labels))
    return checked_dataset(f"tfds:{name}", listed, skip_invalid, training, **options)


def prepared(name, data_dir):
    """The builder of a set that TFDS has prepared; nothing is downloaded."""
    try:
        builder = tfds.builder(name, data_dir=data_dir)
    except ValueError as error:  # an unknown or invalid name, config or version
        cause = str(error).strip().splitlines()[0]
        raise ValueError(f"TensorFlow Datasets cannot load {name!r} ({cause})") from error
    if not builder.data_path.exists():
        chosen = f" --data_dir {data_dir}" if data_dir else ""
        lost = f"{name} is not prepared in {builder.data_path}"
        raise FileNotFoundError(f"{lost}. Prepare it by: tfds build {name}{chosen}")
    return builder


def batches_of(builder, parts, keys, read):
    """NumPy batches of what `read` makes of {key: feature}, the first of them an encoded image."""
    wanted = tfds.decode.PartialDecoding(
        dict.fromkeys(keys, True), decoders={keys[0]: tfds.decode.SkipDecoding()}
    )
    examples = builder.as_dataset(split="+".join(parts), decoders=wanted)
    batches = examples.map(read, num_parallel_calls=tf.data.AUTOTUNE).batch(256).prefetch(2)
    batches, what = on_all_cores(batches), f"Reading {builder.name} ({', '.join(parts)})"
    return progress(what, batches.as_numpy_iterator(), total=len(batches), unit="batch")


def _keys(name, info):
    """Names of the image and the label features."""
    keys, found = info.supervised_keys or ("image", "label"), dict(info.features.items())
    features: list[Any] = [found.get(key) for key in keys]
    kinds = (tfds.features.Image, tfds.features.ClassLabel)
    suits = len(keys) == 2 and all(map(isinstance, features, kinds))
    suits = suits and features[0].shape[2] in (1, 3)
    listed = {key: type(feature).__name__ for key, feature in found.items()}
    needed = f"'tfds:{name}' must have grey or RGB images with one label each"
    check(suits, needed, keys=keys, features=listed)
    return keys


def _read(builder, keys, size):
    """(n, *size) uint8 and (n,) int64, of the rows that have a label."""
    found = builder.info.splits
    parts = [part for part in PARTS if part in found] or list(found)
    wanted = f"'tfds:{builder.name}' must have splits named {', '.join(PARTS)}, or a single one"
    check(len(parts) < 2 or parts[0] in PARTS, wanted, splits=parts)

    def read(example):
        image, label = (example[key] for key in keys)
        return tf.cast(tf.round(resize(decode(image, size[2]), size)), tf.uint8), label

    total = sum(found[part].num_examples for part in parts)
    twice = 2 * total * math.prod(size)  # the parts are copies
    check_fits(twice, "twice the images", dataset=f"tfds:{builder.name}", images=total)
    batches = batches_of(builder, parts, keys, read)
    labelled = ((images[ids >= 0], ids[ids >= 0]) for images, ids in batches)
    return map(np.concatenate, zip(*labelled, strict=True))
