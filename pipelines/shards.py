"""Writes a cache: the images of a dataset, resized, in a few TFRecord files."""

import dataclasses
import hashlib
import io
import json
import os
import pathlib

import numpy as np
import tensorflow as tf
from PIL import Image

from pipelines.batches import boxes_of, part_of
from pipelines.datasets import cache
from pipelines.datasets.listing import PARTS
from pipelines.images import named, warp
from pipelines.preprocessing import Preprocessing
from tfdml.checks import Bare, check, check_integer
from tfdml.command_line import write_text
from tfdml.files import replacing
from tfdml.progress import progress

LARGEST = 4096  # side in pixels
SHARD_BYTES = 128e6  # approximate size of a file
BYTES_PER_PIXEL = 0.45  # of a JPEG of quality 95; photographs have 0.3 to 0.6


def verify(folder):
    """Checks every byte of a cache.

    Args:
        folder: Of the cache.

    Raises:
        FileNotFoundError: If it is unfinished, or files are missing.
        ValueError: If a file has changed since it was written.
    """
    folder = pathlib.Path(folder).expanduser()
    cache.check_files(folder, cache.read_manifest(folder), checksums=True)


def write_cache(
    dataset,
    folder,
    *,
    size=256,
    keep_aspect=False,
    trim_white=False,
    quality=95,
    images_per_file=None,
):
    """Writes the images of a dataset to TFRecord files, each image a `tf.train.Example`.

    Each is cut to its box, if it has one, and stored as `Preprocessing(warp_size=size, ...)` makes
    it before the crop, in 8 bits. Complete files of the same images and settings are kept, so an
    interrupted write can be resumed.

    Args:
        dataset: `Dataset` of image files.
        folder: Of the cache; made if it does not exist.
        size: Side of the images in pixels, at most 4,096.
        keep_aspect: Whether `size` applies to the shorter side only.
        trim_white: Whether to cut off a white border first.
        quality: JPEG quality, 1 to 100; None to store the pixels losslessly, as BMP.
        images_per_file: Images in a file; about 128 MB of them if None.

    Returns:
        The manifest, as returned by `pipelines.datasets.cache.read_manifest`.

    Raises:
        TypeError: If a number is not an integer or a switch not a bool.
        ValueError: If a number is out of range, the dataset is not one of image files, or the
            folder has a cache of other images or settings.
        OSError: If an image cannot be read or a file cannot be written; finished files stay.
    """
    _check(dataset, size, quality, images_per_file)
    preprocessing = Preprocessing(size, keep_aspect, trim_white)
    settings = {
        "dataset": dataset.name,
        **{name: getattr(preprocessing, name) for name in cache.WARP},
        "quality": quality,
        "boxes": dataset.train.boxes is not None,
        "images_per_file": images_per_file or _usual_number(dataset, size, quality),
    }
    images, rows = _listed(dataset)
    plan = {"settings": settings, "images": _digest_of(images, rows)}
    folder = pathlib.Path(folder).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    _check_same(folder, plan)
    shards = _write_shards(folder, plan, images, rows["order"], dataset.image_size[2])
    manifest = _write_index(folder, plan, shards, rows, dataset)
    cache.check_files(folder, manifest)
    return manifest


def _check(dataset, size, quality, images_per_file):
    check_integer(1, size=size)
    check(size <= LARGEST, f"`size` must be from 1 to {LARGEST}", size=size)
    if images_per_file is not None:
        check_integer(1, images_per_file=images_per_file)
    if quality is not None:
        check_integer(1, quality=quality)
        check(quality <= 100, "`quality` must be from 1 to 100", quality=quality)
    for split in dataset.splits.values():
        check(
            split.holds_paths and split.warped is None,
            "a cache needs a dataset of separate image files",
            dataset=Bare(dataset.name),
        )


def _usual_number(dataset, size, quality):
    """The number of images that take about 128 MB."""
    of_pixel = BYTES_PER_PIXEL if quality else dataset.image_size[2]
    return max(1, round(SHARD_BYTES / (of_pixel * size**2)))


def _listed(dataset):
    """All images as one `Split`, and {name: (n,) array} of their columns in the index.

    "order" has the rows in the order in which they are written: those of a class adjacent.
    """
    images = dataset.both()
    numbers = [PARTS.index(name) for name in dataset.splits]
    counts = [len(split.labels) for split in dataset.splits.values()]
    part = np.repeat(np.array(numbers, np.int8), counts)
    rows = {"part": part, "labels": images.labels}
    if images.super_labels is not None:
        rows["super_labels"] = images.super_labels
    rows["order"] = np.lexsort((images.labels, part))
    return images, rows


def _digest_of(images, rows):
    """Digest of the images' names, sizes, labels, parts and boxes, to detect other images."""
    digest = hashlib.sha256()
    for path in images.images:
        digest.update(f"{path}\0{os.stat(path).st_size}\0".encode())
    for array in (*rows.values(), images.boxes):
        digest.update(b"-" if array is None else np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _check_same(folder, plan):
    """Raises a ValueError if a folder holds a cache of other images or settings."""
    for path in sorted(folder.glob("images-*.json")):
        try:
            before = json.loads(path.read_text())
            settings, images = before["settings"], before["images"]
        except (ValueError, LookupError, TypeError):
            continue  # it is rewritten
        changed = {
            name: value for name, value in plan["settings"].items() if settings.get(name) != value
        }
        if changed or images != plan["images"]:
            what = ", ".join(f"{n}={settings.get(n)}, now {v}" for n, v in changed.items())
            raise ValueError(
                f"{folder} holds a cache of other {'settings' if changed else 'images'}: choose "
                f"another folder, or delete it{f'. It has {what}' if changed else ''}"
            )


def _write_shards(folder, plan, images, order, channels):
    """Writes the missing files; returns the metadata of all files, in order."""
    for killed in folder.glob("*.unfinished*"):
        killed.unlink()
    number = plan["settings"]["images_per_file"]
    shards = []
    for first in progress("Writing", range(0, len(order), number), unit="file"):
        path = folder / f"images-{first // number:05}.tfrecord"
        chosen = order[first : first + number]
        shard = _finished(path, plan)
        if shard is None:
            contents = _contents_of(images.subset(chosen), plan["settings"], channels)
            shard = write_shard(path, plan, zip(chosen.tolist(), contents, strict=True), images)
        shards.append(shard)
    return shards


def _finished(path, plan):
    """Metadata of a file of the cache; None if the file is missing or incomplete."""
    try:
        shard = json.loads(path.with_suffix(".json").read_text())
        same = shard["images"] == plan["images"] and shard["settings"] == plan["settings"]
        whole = path.stat().st_size == shard["bytes"] and cache.sha256_of(path) == shard["sha256"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return shard if same and whole else None


def _contents_of(split, settings, channels):
    """The encoded images of a split; an OSError names one that cannot be read."""
    preprocessing = Preprocessing(**{name: settings[name] for name in cache.WARP})
    size, quality = (settings["warp_size"],) * 2, settings["quality"]

    def load(image, box):
        image = warp(part_of(split, image, box, channels), size, preprocessing)
        return tf.io.encode_jpeg(image, quality=quality) if quality else image

    rows = tf.data.Dataset.from_tensor_slices((split.images, boxes_of(split)))
    rows = rows.map(load, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    with named(split):
        for image in rows.as_numpy_iterator():
            yield bytes(image) if quality else _bmp_of(image)


def _bmp_of(image):
    """The bytes of an image as BMP, lossless."""
    content = io.BytesIO()
    Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image).save(content, "BMP")
    return content.getvalue()


def write_shard(path, plan, rows, images):
    """Writes one file and, next to it, its metadata; returns the metadata.

    Args:
        path: Of the file.
        plan: Settings and digest of the images.
        rows: (row, encoded image) of each of its images.
        images: `Split` that the rows index.
    """
    shard = {**plan, "bytes": 0, "sha256": "", "offset": [], "length": []}
    with replacing(path) as unfinished:
        try:
            with tf.io.TFRecordWriter(str(unfinished)) as file:
                for row, content in rows:
                    record = _example_of(row, content, images).SerializeToString()
                    file.write(record)
                    # A record begins with 12 bytes, its length and their checksum, and ends with 4.
                    shard["offset"].append(shard["bytes"] + 12 + record.index(content))
                    shard["length"].append(len(content))
                    shard["bytes"] += 16 + len(record)
        except tf.errors.OpError as error:
            raise OSError(f"{path} cannot be written: {error.message}") from error
        if unfinished.stat().st_size != shard["bytes"]:
            raise OSError(f"{path} cannot be written: the disk took only a part of it")
        shard["sha256"] = cache.sha256_of(unfinished)
    write_text(path.with_suffix(".json"), json.dumps(shard))
    return shard


def _example_of(row, content, images):
    """A `tf.train.Example` with the feature names of TensorFlow's own datasets."""
    label = int(images.labels[row])
    name = (images.class_names or {}).get(label, str(label))
    features = {
        "image/encoded": {"bytes_list": {"value": [content]}},
        "image/class/text": {"bytes_list": {"value": [name.encode()]}},
        "image/filename": {"bytes_list": {"value": [os.fsencode(images.images[row])]}},
        "image/class/label": {"int64_list": {"value": [label]}},
    }
    return tf.train.Example(features={"feature": features})


def _write_index(folder, plan, shards, rows, dataset):
    """Writes the index and, last, the manifest; returns the manifest."""
    index = {name: array for name, array in rows.items() if name != "order"}
    counts = [len(shard["length"]) for shard in shards]
    for name, values in (
        ("shard", np.repeat(np.arange(len(shards)), counts)),
        ("offset", np.concatenate([shard["offset"] for shard in shards])),
        ("length", np.concatenate([shard["length"] for shard in shards])),
    ):
        index[name] = np.empty(len(values), np.int64)
        index[name][rows["order"]] = values
    (folder / cache.MANIFEST).unlink(missing_ok=True)
    with replacing(folder / cache.INDEX) as unfinished, open(unfinished, "wb") as file:
        np.savez_compressed(file, **index)
    class_names = dataset.both().class_names or {}
    manifest = {
        "format": cache.FORMAT,
        "settings": plan["settings"],
        "image_size": [int(side) for side in dataset.image_size],
        "augmentation": dataclasses.asdict(dataset.augmentation),
        "class_names": [[int(label), name] for label, name in class_names.items()],
        "index_sha256": cache.sha256_of(folder / cache.INDEX),
        "shards": [
            {
                "name": f"images-{number:05}.tfrecord",
                "images": len(shard["length"]),
                "bytes": shard["bytes"],
                "sha256": shard["sha256"],
            }
            for number, shard in enumerate(shards)
        ],
    }
    write_text(folder / cache.MANIFEST, json.dumps(manifest, indent=2) + "\n")
    return manifest
