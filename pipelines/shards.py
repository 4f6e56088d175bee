"""Writes a cache: the images of a dataset, resized, in a few TFRecord files."""

import dataclasses
import io
import itertools
import json
import os
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image

from pipelines.datasets.cached import FORMAT, INDEX, MANIFEST, SOURCE, WARP
from pipelines.loading import Reader, named, on_all_cores, rows_of
from pipelines.preprocessing import Preprocessing
from tfdml.checks import Bare, check, check_integer
from tfdml.files import replacing, write_text
from tfdml.quiet import progress

LARGEST = 4096  # side in pixels
SHARD_BYTES = 128e6  # approximate size of a file
AROUND = 16  # bytes of a record: 12 before it, its length and their checksum, and 4 after it
BYTES_PER_PIXEL = 0.45  # of a JPEG of quality 95; photographs have 0.3 to 0.6


def write_cache(dataset, folder, *, size=256, keep_aspect=False, trim_white=False, quality=95):
    """Writes the images of a dataset to TFRecord files, each record an encoded image.

    Each is cut to its box, if it has one, and stored as `Preprocessing(warp_size=size, ...)` makes
    it before the crop, in 8 bits: a JPEG of a quality from 1 to 100, or if None the pixels, as BMP.
    Returns the manifest, which is written last: a write that was stopped begins anew.
    """
    check_integer(1, size=size)
    check(size <= LARGEST, f"`size` must be from 1 to {LARGEST}", size=size)
    if quality is not None:
        check_integer(1, quality=quality)
        check(quality <= 100, "`quality` must be from 1 to 100", quality=quality)
    warped = Preprocessing(size, keep_aspect, trim_white)
    separate = all(split.holds_paths and not split.warped for split in dataset.splits.values())
    needed = "a cache needs a dataset of separate image files"
    check(separate, needed, dataset=Bare(dataset.name))
    dataset.train.check_one_label("images of a cache")
    reader = Reader((size, size, dataset.image_size[2]), warped)
    folder = pathlib.Path(os.path.expanduser(folder))
    if (folder / MANIFEST).exists():
        raise ValueError(f"{folder} holds a cache: choose another folder, or delete it")
    folder.mkdir(parents=True, exist_ok=True)
    bytes_per_image = (BYTES_PER_PIXEL if quality else reader.image_size[2]) * size**2
    number = max(1, round(SHARD_BYTES / bytes_per_image))
    images, rows = _listed(dataset)
    order, shards = np.lexsort((images.labels, rows["part"])), []  # those of a class adjacent
    contents = _contents(images.subset(order), reader, quality)
    parts = np.split(order, range(number, len(order), number))
    for shard, chosen in enumerate(progress("Writing", parts, unit="file")):
        path = folder / f"images-{shard:05}.tfrecord"
        lengths = write_shard(path, itertools.islice(contents, len(chosen)))
        shards.append({"name": path.name, "images": len(chosen), "bytes": path.stat().st_size})
        rows["shard"][chosen], rows["length"][chosen] = shard, lengths
        rows["offset"][chosen] = np.cumsum(np.add(lengths, AROUND)) - lengths - 4
    with replacing(folder / INDEX) as unfinished, open(unfinished, "wb") as file:
        np.savez_compressed(file, **rows)
    manifest = {
        "format": FORMAT,
        "settings": {
            "dataset": dataset.name,
            **{name: getattr(warped, name) for name in WARP},
            "quality": quality,
            "boxes": dataset.train.boxes is not None,
        },
        "image_size": [int(side) for side in dataset.image_size],
        "augmentation": dataclasses.asdict(dataset.augmentation),
        "class_names": [[int(label), name] for label, name in (images.class_names or {}).items()],
        "shards": shards,
    }
    write_text(folder / MANIFEST, json.dumps(manifest, indent=2) + "\n")
    return manifest


def _listed(dataset):
    """All images as one `Split`, and {name: (n,) column} of the index, places yet to be filled."""
    images = dataset.both()
    rows: dict[str, Any] = {"part": dataset.places.astype(np.int8), "labels": images.labels}
    rows[SOURCE] = np.array([os.path.realpath(path) for path in images.images])
    if images.super_labels is not None:
        rows["super_labels"] = images.super_labels
    rows |= {name: np.zeros(len(images.labels), np.int64) for name in ("shard", "offset", "length")}
    return images, rows


def _contents(split, reader, quality):
    """The encoded images of a split; an OSError names one that cannot be read."""

    @tf.autograph.experimental.do_not_convert
    def load(row):
        image = reader.before_crop(row, trained=False)
        return tf.io.encode_jpeg(image, quality=quality) if quality else image

    rows = tf.data.Dataset.from_tensor_slices(rows_of(split))
    rows = rows.map(load, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    with named(split):
        for image in on_all_cores(rows).as_numpy_iterator():
            content = io.BytesIO(image if quality else b"")
            if not quality:
                image = image[:, :, 0] if image.shape[2] == 1 else image
                Image.fromarray(image).save(content, "BMP")
            yield content.getvalue()


def write_shard(path, contents):
    """Writes a TFRecord file in one step; returns the lengths of its records."""
    lengths = []
    with replacing(path, path.with_suffix(".unfinished")) as unfinished:  # which a kill leaves
        try:
            with tf.io.TFRecordWriter(str(unfinished)) as file:
                for content in contents:
                    file.write(content)
                    lengths.append(len(content))
        except tf.errors.OpError as error:
            raise OSError(f"{path} cannot be written: {error.message}") from error
        if unfinished.stat().st_size != sum(lengths) + AROUND * len(lengths):
            raise OSError(f"{path} cannot be written: the disk took only a part of it")
    return lengths
