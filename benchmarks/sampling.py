"""How fast class-balanced batches come: python benchmarks/sampling.py

Prints each measurement beside the limit that the project holds it to.
"""

import itertools
import os
import pathlib
import sys
import tempfile
import time

import numpy as np
import tensorflow as tf
from PIL import Image

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from pipelines import Split, balanced_batches
from pipelines.images import decode, reader
from pipelines.sampling import balanced_indices, group_indices

CLASSES, IMAGES_PER_CLASS = 11_318, 5  # Stanford Online Products, training half
BATCH = {"classes_per_batch": 32, "images_per_class": 4}
BATCH_SIZE = 128
SUPER_CLASSES = 12
GROUP = {"classes_per_batch": 20, "batch_size": 100}
SIZE = (112, 112, 3)
FAR = 10_000_000  # a step that no run reaches


def main():
    labels = np.repeat(np.arange(CLASSES), IMAGES_PER_CLASS)
    tf.constant(0)  # the start of TensorFlow itself is not measured
    show("first batch of indices", seconds_to_first(labels, 0), "s", "at most 3")
    show(f"first batch from step {FAR:,}", seconds_to_first(labels, FAR), "s", "at most 3")
    show("index-only rate", index_rate(labels), "images/s", "at least 100,000")
    show("first group of indices", seconds_to_first_group(labels), "s", "at most 3")
    show("index-only rate of groups", group_rate(labels), "images/s", "at least 100,000")
    with tempfile.TemporaryDirectory() as folder:
        split = write_photos(pathlib.Path(folder))
        read_only = decode_rate(split, lambda contents: decode(contents, 3))
        # In turns, and the best of each: other work on the machine must not favour one of them.
        turns = [(decode_rate(split, reader(SIZE)), batch_rate(split)) for _ in range(3)]
        bare, whole = (max(rates) for rates in zip(*turns, strict=True))
    show("bare decoding", read_only, "images/s")
    show("bare decoding and resizing", bare, "images/s")
    show("balanced batches of files", whole, "images/s")
    show("batches / bare decode and resize", whole / bare, "", "at least 0.8")


def seconds_to_first(labels, start_step):
    began = time.perf_counter()
    next(iter(balanced_indices(labels, **BATCH, start_step=start_step)))
    return time.perf_counter() - began


def index_rate(labels, batches=4000):
    return rate(balanced_indices(labels, **BATCH), batches, BATCH_SIZE)


def seconds_to_first_group(labels):
    began = time.perf_counter()
    next(iter(groups(labels)))
    return time.perf_counter() - began


def group_rate(labels, batches=4000):
    return rate(groups(labels), batches, len(next(iter(groups(labels)))))


def groups(labels):
    """Batches of one size: the classes have 5 images each, all of which fit."""
    return group_indices(labels, labels % SUPER_CLASSES, **GROUP)


def batch_rate(split, batches=20):
    return rate(balanced_batches(split, **BATCH, image_size=SIZE), batches, BATCH_SIZE)


def decode_rate(split, read, batches=20):
    dataset = tf.data.Dataset.from_tensor_slices(split.images).repeat()
    dataset = dataset.map(
        lambda path: read(tf.io.read_file(path)), num_parallel_calls=tf.data.AUTOTUNE
    )
    return rate(dataset.batch(BATCH_SIZE).prefetch(2), batches, BATCH_SIZE)


def rate(dataset, batches, batch_size, warm_up=5):
    iterator = iter(dataset)
    for _ in itertools.islice(iterator, warm_up):
        pass
    began = time.perf_counter()
    for _ in itertools.islice(iterator, batches):
        pass
    return batches * batch_size / (time.perf_counter() - began)


def write_photos(folder, classes=64, images_per_class=8):
    """JPEG files of 256 × 256 pixels, about 20 KB: smooth noise, which compresses as photos do."""
    rng = np.random.default_rng(0)
    paths = [str(folder / f"{index}.jpg") for index in range(classes * images_per_class)]
    for path in paths:
        coarse = Image.fromarray(rng.integers(0, 256, (48, 48, 3), dtype=np.uint8))
        coarse.resize((256, 256), Image.Resampling.BICUBIC).save(path, quality=90)
    return Split(np.array(paths), np.repeat(np.arange(classes), images_per_class))


def show(what, value, unit, limit="-"):
    print(f"{what:32} {value:14,.2f} {unit:9} limit: {limit}")


if __name__ == "__main__":
    print(
        f"{CLASSES:,} classes x {IMAGES_PER_CLASS} images, batches of 32 x 4, {os.cpu_count()} CPUs"
    )
    main()
