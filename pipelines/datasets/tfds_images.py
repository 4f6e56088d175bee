import math
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from pipelines.augmentation import Augmentation
from pipelines.datasets import cars196, cub200
from pipelines.datasets.listing import AUGMENTATION, IMAGE_SIZE, Listing, dataset_of, first_half
from pipelines.images import crop
from pipelines.parallel import on_all_cores
from tfdml.checks import check, check_fits, nearest
from tfdml.images.decoding import decode, resize, upright
from tfdml.progress import progress

SIDE = 256  # pixels that larger images, and images of several sizes, are resized to
PARTS = ("train", "validation", "test")
COUNTS = {"caltech_birds2011": cub200.COUNTS, "cars196": cars196.COUNTS}


def load(data_dir=None, skip_invalid=False, training=True, boxes=False, *, name, download=False):
    """Any labelled image set of TensorFlow Datasets, its classes split into halves.

    Its splits named train, validation and test are merged; a set without them must have a single
    split. The first half of the classes (rounded down) is for training: for `caltech_birds2011` and
    `cars196` this is the split of the papers. Images without a label (-1) are left out.

    All images are held in memory: unchanged if all have one size up to 256 x 256, otherwise resized
    to 256 x 256 pixels, 196,608 bytes each; while they are read, twice.

    Args:
        boxes: Whether to crop each image to its bounding box.
        name: Of the set, such as `cars196`, or with a config or version, such as `mnist:3.*.*`.
    """
    builder = prepared(name, data_dir, download)
    features = builder.info.features
    image, label = _keys(name, builder.info)
    box = _key_of_boxes(name, features) if boxes else None
    shape = features[image].shape
    as_they_are = None not in shape and max(shape[:2]) <= SIDE and not boxes
    size = shape if as_they_are else (SIDE, SIDE, shape[2])
    images, labels = _read(builder, image, label, box, size)
    names = features[label].names or []
    return dataset_of(
        f"tfds:{name}",
        Listing(images, labels, dict(enumerate(names)), parts=first_half(labels)),
        skip_invalid,
        training,
        counts=COUNTS.get(builder.name),
        image_size=size if as_they_are else (*IMAGE_SIZE[:2], shape[2]),
        augmentation=Augmentation() if as_they_are else AUGMENTATION,
    )


def prepared(name, data_dir, download=None):
    """The builder of a set that TFDS has prepared, or may download; `download` is None if not ever.

    Raises:
        FileNotFoundError: If it is not prepared and `download` is not True.
        ValueError: If there is no such set.
    """
    try:
        builder = tfds.builder(name, data_dir=data_dir)
    except tfds.core.DatasetNotFoundError as error:
        closest = nearest(name, tfds.list_builders())
        hint = f" Did you mean 'tfds:{closest}'?" if closest else ""
        raise ValueError(f"TensorFlow Datasets has no set {name!r}.{hint}") from error
    except ValueError as error:  # invalid name, config or version
        cause = str(error).splitlines()[0]
        raise ValueError(f"TensorFlow Datasets cannot load {name!r} ({cause})") from error
    if download and not builder.data_path.exists():
        builder.download_and_prepare()
    elif not builder.data_path.exists():
        chosen = f" --data_dir {data_dir}" if data_dir else ""
        also = "" if download is None else ", or in Python with download=True"
        lost = f"{name} is not prepared in {builder.data_path}"
        raise FileNotFoundError(f"{lost}. Prepare it by: tfds build {name}{chosen}{also}")
    return builder


def batches_of(builder, parts, keys, read):
    """Batches of the examples of some parts of a set, in NumPy, with a progress bar.

    Of the features `keys` the first is the image, which is not decoded; `read` makes of an example,
    {key: value}, what to batch.
    """
    wanted = tfds.decode.PartialDecoding(
        dict.fromkeys(keys, True), decoders={keys[0]: tfds.decode.SkipDecoding()}
    )
    examples = builder.as_dataset(split="+".join(parts), decoders=wanted)
    batches = examples.map(read, num_parallel_calls=tf.data.AUTOTUNE).batch(256).prefetch(2)
    batches = on_all_cores(batches)
    what = f"Reading {builder.name} ({', '.join(parts)})"
    return progress(what, batches.as_numpy_iterator(), total=len(batches), unit="batch")


def _keys(name, info):
    """Names of the image and the label features."""
    keys = info.supervised_keys or ("image", "label")
    found = dict(info.features.items())
    features: list[Any] = [found.get(key) for key in keys]
    needed = f"'tfds:{name}' must have grey or RGB images with one label each"
    listed = {key: type(feature).__name__ for key, feature in found.items()}
    suits = len(keys) == 2 and isinstance(features[1], tfds.features.ClassLabel)
    suits = suits and isinstance(features[0], tfds.features.Image)
    suits = suits and features[0].shape[2] in (1, 3)
    check(suits, needed, keys=keys, features=listed)
    return keys


def _key_of_boxes(name, features):
    kind = tfds.features.BBoxFeature
    keys = [key for key, feature in features.items() if isinstance(feature, kind)]
    check(len(keys) == 1, f"'tfds:{name}' must have one bounding box for each image", boxes=keys)
    return keys[0]


def _read(builder, image, label, box, size):
    """(n, *size) uint8 and (n,) int64, of the rows that have a label."""
    found = builder.info.splits
    parts = [part for part in PARTS if part in found] or list(found)
    if len(parts) > 1 and parts[0] not in PARTS:
        wanted = f"splits named {', '.join(PARTS)}, or a single one"
        raise ValueError(f"'tfds:{builder.name}' must have {wanted}. Received: {', '.join(parts)}")

    def read(example):
        pixels = decode(example[image], size[2], as_stored=bool(box))
        if box:
            pixels = crop(pixels, _pixels_of_box(example[box], tf.shape(pixels)))
            pixels = upright(pixels, example[image])
        return tf.cast(tf.round(resize(pixels, size)), tf.uint8), example[label]

    total = sum(found[part].num_examples for part in parts)
    twice = 2 * total * math.prod(size)  # the parts are copies
    check_fits(twice, "twice the images", dataset=f"tfds:{builder.name}", images=total)
    images, labels, rows = np.empty((total, *size), np.uint8), np.empty(total, np.int64), 0
    keys = [key for key in (image, label, box) if key]
    for some, ids in batches_of(builder, parts, keys, read):
        kept = ids >= 0
        end = rows + kept.sum()
        images[rows:end], labels[rows:end], rows = some[kept], ids[kept], end
    return images[:rows], labels[:rows]


def _pixels_of_box(box, shape):
    """Edges of a relative box in pixels: left, upper, right and lower, at least 1 x 1."""
    sides = tf.cast(tf.stack([shape[0], shape[1], shape[0], shape[1]]), tf.float32)
    top, left, bottom, right = tf.unstack(tf.cast(tf.round(box * sides), tf.int32))
    left, top = tf.minimum(left, shape[1] - 1), tf.minimum(top, shape[0] - 1)
    return tf.stack([left, top, tf.maximum(right, left + 1), tf.maximum(bottom, top + 1)])
