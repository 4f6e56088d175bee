"""Speed of decoding with augmentation, compared with bare decoding.

    python benchmarks/image_speed.py [--data_dir PHOTOS] [--images 1024] [--turns 3]

Reads JPEG files of 256 × 256 pixels, made of photographs (one sub-folder per class) or of noise.
Prints images per second and CPU time per image, measured in turns, the best of each. The ratios to
bare decoding are of CPU time, which other work on the machine disturbs least.
"""

import argparse
import itertools
import pathlib
import tempfile

import numpy as np
import tensorflow as tf
from PIL import Image
from timing import seconds_of

import pipelines
from pipelines import Augmentation, Preprocessing
from tfdml.images.decoding import decode

SIDE, BATCH_SIZE, BATCH = 256, 128, {"classes_per_batch": 32, "images_per_class": 4}
CLASSES = 32
# Name -> side of the crop, augmentation and preprocessing.
WAYS = {
    "random 227 crop": (227, Augmentation(), Preprocessing(warp_size=SIDE)),
    "random 227 crop, mirror": (227, Augmentation(flip=True), Preprocessing(warp_size=SIDE)),
    "random resized crop 224, mirror": (
        224,
        Augmentation(crop=0.5, aspect=4 / 3, flip=True),
        Preprocessing(),
    ),
}


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data_dir", type=pathlib.Path, help="noise if not given")
    parser.add_argument("--images", type=int, default=1024)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        split = written(pathlib.Path(folder), given.data_dir, given.images)
        pipelines_of = {
            "decoding": lambda: decoded(split),
            "decoding to float32": lambda: decoded(split).map(
                lambda images: tf.cast(images, tf.float32), num_parallel_calls=tf.data.AUTOTUNE
            ),
            **{name: lambda way=way: trained(split, *way) for name, way in WAYS.items()},
        }
        for name, way in [*WAYS.items()][1:]:
            once = trained(split, *way, kept_bytes=4 * 10**9)
            all(
                True for _ in once.take(4 * given.images // BATCH_SIZE)
            )  # each image, at least once
            pipelines_of[f"{name}, kept"] = lambda once=once: once
        measured = {name: [] for name in pipelines_of}
        for _ in range(given.turns):
            for name, make in pipelines_of.items():
                measured[name].append(cost(make()))
    best = {name: (min(w for w, _ in m), min(c for _, c in m)) for name, m in measured.items()}
    print(f"{given.images:,} images of {SIDE} x {SIDE}, batches of {BATCH_SIZE}")
    print(f"{'':38}{'images/s':>10}{'µs of CPU':>11}{'of decoding':>13}{'of float32':>12}")
    for name, (wall, processor) in best.items():
        shares = [best[other][1] / processor for other in ("decoding", "decoding to float32")]
        print(
            f"{name:38}{1 / wall:10,.0f}{1e6 * processor:11,.0f}{shares[0]:13.2f}{shares[1]:12.2f}"
        )
    print("limit: a random crop and mirror at 0.90 of decoding")


def decoded(split):
    """Endless batches of decoded files."""
    paths = tf.data.Dataset.from_tensor_slices(split.images).repeat()
    images = paths.map(
        lambda path: decode(tf.io.read_file(path), 3), num_parallel_calls=tf.data.AUTOTUNE
    )
    return images.batch(BATCH_SIZE).prefetch(tf.data.AUTOTUNE)


def trained(split, side, augmentation, preprocessing, kept_bytes=0):
    reader = pipelines.Reader((side, side, 3), preprocessing, augmentation)
    sampler = pipelines.Balanced(**BATCH)
    return pipelines.batches(split, sampler, reader, kept_bytes=kept_bytes)


def cost(batches, number=8, warm_up=2):
    """Wall and CPU seconds per image."""
    options = tf.data.Options()
    options.autotune.enabled = False  # it would prefetch ever more batches, which would be counted
    iterator = iter(batches.with_options(options))
    for _ in itertools.islice(iterator, warm_up):
        pass

    def read():
        for _ in itertools.islice(iterator, number):
            pass

    return [seconds / (number * BATCH_SIZE) for seconds in seconds_of(read)]


def written(folder, data_dir, number):
    """A `Split` of JPEG files of 256 × 256 pixels."""
    if data_dir is None:
        rng = np.random.default_rng(0)
        photos = (rng.integers(0, 256, (48, 48, 3), dtype=np.uint8) for _ in range(number))
        photos = (Image.fromarray(noise) for noise in photos)
    else:
        paths = sorted(data_dir.expanduser().glob("*/*.jpg"))[:number]
        photos = (Image.open(path).convert("RGB") for path in paths)
    files = []
    for index, photo in enumerate(photos):
        files.append(str(folder / f"{index}.jpg"))
        photo.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(files[-1], quality=95)
    return pipelines.Split(np.array(files), np.arange(len(files)) * CLASSES // len(files))


if __name__ == "__main__":
    main()
