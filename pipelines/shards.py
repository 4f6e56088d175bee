"""Writes a cache: the images of a dataset, resized, in a few TFRecord files."""

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import pathlib
import time

import numpy as np
import tensorflow as tf
from PIL import Image

from pipelines.datasets import cache
from pipelines.datasets.listing import PARTS
from pipelines.images import named, warp
from pipelines.loading import read, rows_of
from pipelines.parallel import on_all_cores
from pipelines.preprocessing import Preprocessing
from tfdml.checks import Bare, check, check_integer
from tfdml.files import read_text, replacing, write_text
from tfdml.progress import progress

LARGEST = 4096  # side in pixels
SHARD_BYTES = 128e6  # approximate size of a file
BYTES_PER_PIXEL = 0.45  # of a JPEG of quality 95; photographs have 0.3 to 0.6
_KILLED = 600  # seconds without a write after which an unfinished file is taken as left behind


def verify(folder):
    """Checks every byte of a cache; raises an error if files are missing or have changed."""
    folder = pathlib.Path(os.path.expanduser(folder))
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
    it before the crop, in 8 bits. Complete files of images of the same names and sizes, by the same
    settings, are kept, so an interrupted write can be resumed.

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
    warped = preprocessing_of(size, keep_aspect, trim_white, quality)
    _check(dataset, images_per_file)
    bytes_per_pixel = BYTES_PER_PIXEL if quality else dataset.image_size[2]
    usual_number = max(1, round(SHARD_BYTES / (bytes_per_pixel * size**2)))
    settings = {
        "dataset": dataset.name,
        **{name: getattr(warped, name) for name in cache.WARP},
        "quality": quality,
        "boxes": dataset.train.boxes is not None,
        "images_per_file": images_per_file or usual_number,
    }
    images, rows = _listed(dataset)
    plan = {"settings": settings, "images": _digest_of(images, rows)}
    folder = pathlib.Path(os.path.expanduser(folder))
    folder.mkdir(parents=True, exist_ok=True)
    shards = _write_shards(folder, plan, images, rows["order"], dataset.image_size[2])
    return _write_index(folder, plan, shards, rows, dataset, images.class_names or {})


def preprocessing_of(size, keep_aspect, trim_white, quality):
    """The `Preprocessing` of the images of a cache, from checked arguments of `write_cache`."""
    check_integer(1, size=size)
    check(size <= LARGEST, f"`size` must be from 1 to {LARGEST}", size=size)
    if quality is not None:
        check_integer(1, quality=quality)
        check(quality <= 100, "`quality` must be from 1 to 100", quality=quality)
    return Preprocessing(size, keep_aspect, trim_white)


def _check(dataset, images_per_file):
    if images_per_file is not None:
        check_integer(1, images_per_file=images_per_file)
    separate = all(split.holds_paths and not split.warped for split in dataset.splits.values())
    needed = "a cache needs a dataset of separate image files"
    check(separate, needed, dataset=Bare(dataset.name))
    dataset.train.check_one_label("images of a cache")


def _listed(dataset):
    """All images as one `Split`, and {name: (n,) array} of their columns in the index.

    "order" has the rows in the order in which they are written: those of a class adjacent.
    """
    images = dataset.both()
    counts = [len(split.labels) for split in dataset.splits.values()]
    numbers = np.array([PARTS.index(name) for name in dataset.splits], np.int8)
    rows = {"part": np.repeat(numbers, counts), "labels": images.labels}
    rows[cache.SOURCE] = np.array([os.path.realpath(path) for path in images.images])
    if images.super_labels is not None:
        rows["super_labels"] = images.super_labels
    return images, {**rows, "order": np.lexsort((images.labels, rows["part"]))}


def _digest_of(images, rows):
    """Digest of the images' files, sizes, labels, parts and boxes, to detect other images."""
    digest = hashlib.sha256()
    for path in rows[cache.SOURCE]:
        digest.update(f"{path}\0{os.stat(path).st_size}\0".encode())
    arrays = [array for name, array in rows.items() if name != cache.SOURCE]
    for array in (*arrays, images.boxes):
        digest.update(b"-" if array is None else np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _write_shards(folder, plan, images, order, channels):
    """Writes the missing files; returns the metadata of all files, in order."""
    written = _written(folder, plan)
    for path in folder.glob("*.unfinished*"):
        with contextlib.suppress(FileNotFoundError):  # another process has just finished it
            if time.time() - path.stat().st_mtime > _KILLED:
                path.unlink()
    number = plan["settings"]["images_per_file"]
    shards = []
    for first in progress("Writing", range(0, len(order), number), unit="file"):
        path = folder / f"images-{first // number:05}.tfrecord"
        chosen = order[first : first + number]
        shard = written.get(path)
        if not (shard and _is_whole(path, shard)):
            contents = _contents_of(images.subset(chosen), plan["settings"], channels)
            shard = write_shard(path, plan, zip(chosen.tolist(), contents, strict=True), images)
        shards.append(shard)
    return shards


def _written(folder, plan):
    """{file: its metadata} of earlier writes; a ValueError if of other images or settings."""
    shards = {}
    for path in sorted(folder.glob("images-*.json")):
        try:
            shard = json.loads(read_text(path))
            had, images = shard["settings"], shard["images"]
        except (ValueError, LookupError, TypeError):
            continue  # it is rewritten
        wanted = plan["settings"].items()
        changed = [f"{n}={had.get(n)}, now {value}" for n, value in wanted if had.get(n) != value]
        if changed or images != plan["images"]:
            raise ValueError(
                f"{folder} holds a cache of other {'settings' if changed else 'images'}: choose "
                f"another folder, or delete it{'. It has ' * bool(changed)}{', '.join(changed)}"
            )
        shards[path.with_suffix(".tfrecord")] = shard
    return shards


def _is_whole(path, shard):
    """Whether a file of the cache has all of the bytes that its metadata states."""
    try:
        complete = path.stat().st_size == shard.get("bytes")
        return complete and cache.sha256_of(path) == shard.get("sha256")
    except OSError:
        return False


def _contents_of(split, settings, channels):
    """The encoded images of a split; an OSError names one that cannot be read."""
    warped = Preprocessing(**{name: settings[name] for name in cache.WARP})
    size, quality = (settings["warp_size"],) * 2, settings["quality"]

    @tf.autograph.experimental.do_not_convert
    def load(row):
        image = warp(read(row, channels), size, warped)
        return tf.io.encode_jpeg(image, quality=quality) if quality else image

    rows = tf.data.Dataset.from_tensor_slices(rows_of(split))
    rows = rows.map(load, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    with named(split):
        for image in on_all_cores(rows).as_numpy_iterator():
            if quality:
                yield bytes(image)
            else:
                content = io.BytesIO()
                Image.fromarray(image[:, :, 0] if channels == 1 else image).save(content, "BMP")
                yield content.getvalue()


def write_shard(path, plan, rows, images):
    """Writes one file of (row, encoded image) and, next to it, its metadata; returns the latter."""
    shard = {**plan, "bytes": 0, "sha256": "", "offset": [], "length": []}
    with replacing(path) as unfinished:
        try:
            with tf.io.TFRecordWriter(str(unfinished)) as file:
                for row, content in rows:
                    example = _example_of(row, content, images)
                    record = example.SerializeToString(deterministic=True)  # in every process
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
    texts = {"encoded": content, "class/text": name.encode()}
    texts["filename"] = os.fsencode(images.images[row])
    features = {f"image/{key}": {"bytes_list": {"value": [texts[key]]}} for key in texts}
    features["image/class/label"] = {"int64_list": {"value": [label]}}
    return tf.train.Example(features={"feature": features})


def _write_index(folder, plan, shards, rows, dataset, class_names):
    """Writes the index and, last, the manifest; returns the manifest."""
    index = {name: array for name, array in rows.items() if name != "order"}
    index["shard"] = np.repeat(np.arange(len(shards)), [len(shard["length"]) for shard in shards])
    index["offset"] = np.concatenate([shard["offset"] for shard in shards])
    index["length"] = np.concatenate([shard["length"] for shard in shards])
    for name in ("shard", "offset", "length"):
        index[name] = index[name][np.argsort(rows["order"])].astype(np.int64)
    (folder / cache.MANIFEST).unlink(missing_ok=True)
    with replacing(folder / cache.INDEX) as unfinished, open(unfinished, "wb") as file:
        np.savez_compressed(file, **index)
    manifest = {
        "format": cache.FORMAT,
        "settings": plan["settings"],
        "image_size": [int(side) for side in dataset.image_size],
        "augmentation": dataclasses.asdict(dataset.augmentation),
        "class_names": [[int(label), name] for label, name in class_names.items()],
        "index_sha256": cache.sha256_of(folder / cache.INDEX),
        "shards": [
            {"name": f"images-{number:05}.tfrecord", "images": len(shard["length"])}
            | {key: shard[key] for key in ("bytes", "sha256")}
            for number, shard in enumerate(shards)
        ],
    }
    write_text(folder / cache.MANIFEST, json.dumps(manifest, indent=2) + "\n")
    return manifest
