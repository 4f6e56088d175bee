"""Speed of training from a cache, compared with the original files.

    python benchmarks/cache_speed.py --data_dir PHOTOS [--images 1024] [--turns 3] [--cold]

PHOTOS has one sub-folder per class. Batches of random crops are read from the photographs, from
files of the cache's JPEGs, and from the caches. Prints images per second and CPU time per image,
measured in turns, the best of each. `--cold` drops the files from the system's page cache before
each turn, if the system allows it.
"""

import argparse
import os
import pathlib
import tempfile

import numpy as np
from image_speed import CLASSES, SIDE, cost, trained

import pipelines
from pipelines import Augmentation, Dataset, Preprocessing, Split, records
from pipelines.shards import write_cache

WAY = (227, Augmentation(flip=True), Preprocessing(warp_size=SIDE))


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data_dir", type=pathlib.Path, required=True)
    parser.add_argument("--images", type=int, default=1024)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--cold", action="store_true")
    given = parser.parse_args()
    photos = sorted(map(str, given.data_dir.expanduser().glob("*/*.jpg")))[: given.images]
    split = Split(np.array(photos), np.arange(len(photos)) * CLASSES // len(photos))
    with tempfile.TemporaryDirectory() as folder:
        splits = sources(pathlib.Path(folder), split)
        measured = {name: [] for name in splits}
        for _ in range(given.turns):
            for name, each in splits.items():
                if given.cold:
                    forget(each)
                measured[name].append(cost(trained(each, *WAY)))
    best = {name: (min(w for w, _ in m), min(c for _, c in m)) for name, m in measured.items()}
    print(f"{len(photos):,} images, batches of 128 random crops of 227 of {SIDE} pixels, mirrored")
    print(f"{'':24}{'images/s':>10}{'µs of CPU':>11}{'speed of JPEG files':>21}")
    for name, (wall, processor) in best.items():
        share = best["JPEG files"][1] / processor
        print(f"{name:24}{1 / wall:10,.0f}{1e6 * processor:11,.0f}{share:21.2f}")
    print("limit: the cache of JPEGs at 1.00 of JPEG files, by the time of the processor")


def sources(folder, split):
    """{name: `Split`} of the same images."""
    scored = Split(split.images[:2], [-1, -1])
    dataset = Dataset("photos", split, scored, image_size=(224, 224, 3))
    caches = {"cache of JPEGs": 95, "cache without loss": None}
    for name, quality in caches.items():
        write_cache(dataset, folder / name, size=SIDE, quality=quality)
        caches[name] = pipelines.load("cache", data_dir=folder / name).train
    files = [str(folder / f"{row}.jpg") for row in range(len(split.labels))]
    for path, record in zip(files, caches["cache of JPEGs"].images, strict=True):
        pathlib.Path(path).write_bytes(records.read(record))
    return {"photographs": split, "JPEG files": Split(np.array(files), split.labels), **caches}


def forget(split):
    """Asks the system to drop the files from its page cache."""
    for path in {str(path).partition(".tfrecord:")[0] for path in split.images}:
        path = path if os.path.exists(path) else f"{path}.tfrecord"
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


if __name__ == "__main__":
    main()
