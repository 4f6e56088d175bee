"""Reads the caches that `python -m pipelines.cache` writes."""

import json
import pathlib

import numpy as np

from pipelines.datasets import given_path
from pipelines.datasets.image_list import PARTS, ImageList
from pipelines.preprocessing import Augmentation, Preprocessing
from pipelines.split import Dataset
from tfdml.checks import check
from tfdml.files import read_text

FORMAT = 1
MANIFEST, INDEX = "manifest.json", "index.npz"
SOURCE = "source"  # in the index: real paths of the files
WARP = ("warp_size", "keep_aspect", "trim_white")
AGAIN = "delete the folder, and write the cache again by python -m pipelines.cache"


def load(data_dir=None, skip_invalid=False, training=True):
    """A cache of another dataset: its images, resized, in a few large files.

    Classes, names, splits and the order of rows are those of the original dataset, so the batches
    of a seed have the same images; super-classes too, if all splits have them. Of the files
    the sizes are checked.
    """
    folder = given_path("cache", data_dir, "a folder that `python -m pipelines.cache` wrote")
    manifest = read_manifest(folder)
    paths, rows = _read_index(folder, manifest)
    class_names, settings = dict(manifest["class_names"]) or None, manifest["settings"]
    warped = Preprocessing(**{name: settings[name] for name in WARP})
    parts, super_labels = np.array(PARTS)[rows["part"]], rows.get("super_labels")
    images = ImageList(paths, rows["labels"], class_names, super_labels, warped=warped, parts=parts)
    if training:
        images = images.without_single(skip_invalid)
    size, augmentation = tuple(manifest["image_size"]), Augmentation(**manifest["augmentation"])
    defaults = {"image_size": size, "augmentation": augmentation, "preprocessing": warped}
    return Dataset(settings["dataset"], **defaults, **images.splits())


def sources_of(images):
    """The real paths of the files that images of a cache, (n,) paths of records, were made of."""
    folder = pathlib.Path(images[0]).parent
    paths, rows = _read_index(folder, read_manifest(folder))
    source = dict(zip(paths, rows[SOURCE].tolist(), strict=True))
    return [source[path] for path in images]


def read_manifest(folder):
    """The manifest of a finished cache whose files have the sizes that it states."""
    path = folder / MANIFEST
    if not path.is_file():
        lost = f"there is no finished cache in {folder}, which has no {MANIFEST}"
        raise FileNotFoundError(f"{lost}: write or finish it with python -m pipelines.cache")
    try:
        manifest = json.loads(read_text(path))
        version = manifest["format"]
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{path} cannot be read ({error}): {AGAIN}") from error
    expected = f"{path} must have format {FORMAT}: {AGAIN}"
    check(version == FORMAT, expected, format=version)
    for shard in manifest["shards"]:
        path, expected = folder / shard["name"], shard["bytes"]
        size = path.stat().st_size if path.is_file() else None
        if size is None:
            raise FileNotFoundError(f"{path} is missing: {AGAIN}")
        check(size == expected, f"{path} must have {expected:,} bytes: {AGAIN}", bytes=size)
    return manifest


def _read_index(folder, manifest):
    """The paths of the images, and {name: column} of the index."""
    path = folder / INDEX
    try:
        with np.load(path) as index:
            rows = dict(index)
            check(SOURCE in rows, "it must state the files that it was made of", has=[*rows])
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is missing: {AGAIN}") from None
    except Exception as error:  # what NumPy raises for a damaged archive has no common class
        raise ValueError(f"{path} cannot be read ({error}): {AGAIN}") from error
    files = [folder / shard["name"] for shard in manifest["shards"]]
    places = zip(rows["shard"], rows["offset"], rows["length"], strict=True)
    return [f"{files[shard]}:{offset}:{length}" for shard, offset, length in places], rows
