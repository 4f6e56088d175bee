"""Speed of the samplers: python benchmarks/sampling_speed.py

Prints each measurement next to its limit.
"""

import itertools
import os
import pathlib
import tempfile
import time

import numpy as np
import tensorflow as tf
from PIL import Image

from pipelines import (
    Balanced,
    Groups,
    HardNeighbours,
    Pairs,
    Reader,
    Shuffled,
    Split,
    WholeClasses,
    balanced_batches,
    pair_batches,
)
from tfdml.images.decoding import decode

CLASSES, IMAGES_PER_CLASS = 11_318, 5  # Stanford Online Products, training half
BATCH = {"classes_per_batch": 32, "images_per_class": 4}
BATCH_SIZE = 128
SUPER_CLASSES = 12
SIZE = (112, 112, 3)
FAR = 10_000_000  # a step that no run reaches
SAMPLERS = {
    "balanced": Balanced(**BATCH),
    "groups": Groups(classes_per_batch=20, batch_size=100),
    "whole classes": WholeClasses(100),
    "shuffled": Shuffled(BATCH_SIZE),
    "pairs": Pairs(BATCH_SIZE),
}


def main():
    labels = np.repeat(np.arange(CLASSES), IMAGES_PER_CLASS)
    tf.constant(0)  # starts TensorFlow, which is not measured
    supers = labels % SUPER_CLASSES
    split = Split(inputs=np.arange(len(labels)), labels=labels, super_labels=supers)
    for name, sampler in SAMPLERS.items():
        for step in (0, FAR):
            began = time.perf_counter()
            next(iter(indices_of(sampler, split, step)))
            seconds = time.perf_counter() - began
            show(f"{name}: first batch from step {step:,}", seconds, "s", "at most 3")
        speed = rate(indices_of(sampler, split, 0), 4000)
        show(f"{name}: index-only rate", speed, "images/s", "at least 100,000")
    search, first, speed = hard_neighbours(labels)
    show("hard neighbours: search", search, "s")
    show("hard neighbours: first batch", first, "s", "at most 3")
    show("hard neighbours: rate", speed, "images/s")
    with tempfile.TemporaryDirectory() as folder:
        split = write_photos(pathlib.Path(folder))
        read_only = decode_rate(split, lambda contents: decode(contents, 3))
        # In turns, and the best of each, so that other work on the machine favours none.
        turns = [(decode_rate(split, Reader(SIZE)), batch_rate(split)) for _ in range(3)]
        bare, whole = (max(rates) for rates in zip(*turns, strict=True))
    show("bare decoding", read_only, "images/s")
    show("bare decoding and resizing", bare, "images/s")
    show("balanced batches of files", whole, "images/s")
    show("batches / bare decode and resize", whole / bare, "", "at least 0.8")


@tf.autograph.experimental.do_not_convert
def indices_of(sampler, split, step):
    """Endless batches of rows alone."""
    steps = tf.data.Dataset.counter(tf.constant(step, tf.int64))
    return steps.map(lambda step: sampler.indices(split, 0, step), tf.data.AUTOTUNE)


def hard_neighbours(labels, batches=400):
    """Seconds to search all images and to the first batch; 1-pixel images per second."""
    neighbours = HardNeighbours(labels, BATCH_SIZE, refresh_every=10 * batches)
    embeddings = np.random.default_rng(0).normal(size=(len(labels), 128))
    began = time.perf_counter()
    neighbours.refresh(0, embeddings)
    searched = time.perf_counter()
    split = Split(np.zeros((len(labels), 1, 1, 1), np.uint8), labels)
    dataset = pair_batches(split, BATCH_SIZE, hard_neighbours=neighbours)
    next(iter(dataset))
    return searched - began, time.perf_counter() - searched, rate(dataset, batches)


def batch_rate(split, batches=20):
    return rate(balanced_batches(split, **BATCH, image_size=SIZE), batches)


def decode_rate(split, read, batches=20):
    dataset = tf.data.Dataset.from_tensor_slices(split.images).repeat()
    dataset = dataset.map(
        lambda path: read(tf.io.read_file(path)), num_parallel_calls=tf.data.AUTOTUNE
    )
    return rate(dataset.batch(BATCH_SIZE).prefetch(2), batches)


def rate(dataset, batches, warm_up=5):
    """Rows per second."""
    iterator = iter(dataset)
    for _ in itertools.islice(iterator, warm_up):
        pass
    began, rows = time.perf_counter(), 0
    for batch in itertools.islice(iterator, batches):
        rows += len(tf.nest.flatten(batch)[0])
    return rows / (time.perf_counter() - began)


def write_photos(folder, classes=64, images_per_class=8):
    """JPEG files of 256 × 256 pixels, about 20 KB: smooth noise, which compresses like photos."""
    rng = np.random.default_rng(0)
    paths = [str(folder / f"{index}.jpg") for index in range(classes * images_per_class)]
    for path in paths:
        coarse = Image.fromarray(rng.integers(0, 256, (48, 48, 3), dtype=np.uint8))
        coarse.resize((256, 256), Image.Resampling.BICUBIC).save(path, quality=90)
    return Split(np.array(paths), np.repeat(np.arange(classes), images_per_class))


def show(what, value, unit, limit="-"):
    print(f"{what:45} {value:14,.2f} {unit:9} limit: {limit}")


if __name__ == "__main__":
    print(
        f"{CLASSES:,} classes x {IMAGES_PER_CLASS} images, batches of {BATCH_SIZE} or 100, "
        f"{os.cpu_count()} CPUs"
    )
    main()
