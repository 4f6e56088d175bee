"""Reads the caches that `python -m pipelines.cache` writes."""

import hashlib
import json
import pathlib

import numpy as np

from pipelines.augmentation import Augmentation
from pipelines.datasets import given_path
from pipelines.datasets.listing import PARTS, Listing, without_single
from pipelines.preprocessing import Preprocessing
from pipelines.records import record_path
from pipelines.split import Dataset
from tfdml.checks import check
from tfdml.files import read_text
from tfdml.progress import progress

FORMAT = 1
MANIFEST, INDEX = "manifest.json", "index.npz"
SOURCE = "source"  # in the index, but in those of earlier versions: real paths of the files
WARP = ("warp_size", "keep_aspect", "trim_white")


def load(data_dir=None, skip_invalid=False, training=True):
    """A cache of another dataset: its images, resized, in a few large files.

    Classes, names, splits and the order of rows are those of the original dataset, so the batches
    of a seed have the same images; super-classes too, if all splits have them. The sizes of the
    files are checked here; `python -m pipelines.cache --verify` checks all of their bytes.
    """
    folder = given_path("cache", data_dir, "a folder that `python -m pipelines.cache` wrote")
    manifest = read_manifest(folder)
    check_files(folder, manifest)
    with np.load(folder / INDEX) as index:
        rows = {name: index[name] for name in index.files if name != SOURCE}
    paths = _paths_of(folder, manifest, rows)
    class_names = dict(manifest["class_names"]) or None
    settings = manifest["settings"]
    warped = Preprocessing(**{name: settings[name] for name in WARP})
    parts, super_labels = np.array(PARTS)[rows["part"]], rows.get("super_labels")
    listing = Listing(paths, rows["labels"], class_names, super_labels, warped=warped, parts=parts)
    if training:
        listing = without_single(listing, skip_invalid)
    size, augmentation = tuple(manifest["image_size"]), Augmentation(**manifest["augmentation"])
    defaults = {"image_size": size, "augmentation": augmentation, "preprocessing": warped}
    return Dataset(settings["dataset"], **defaults, **listing.splits())


def _paths_of(folder, manifest, index):
    """The paths of the images, in the order of the index."""
    files = [str(folder / shard["name"]) for shard in manifest["shards"]]
    places = zip(index["shard"], index["offset"], index["length"], strict=True)
    return [record_path(files[shard], *place) for shard, *place in places]


def sources_of(images):
    """The real paths of the files that images of a cache, (n,) paths of records, were made of.

    None for a cache of a version that did not keep them.
    """
    folder = pathlib.Path(images[0]).parent
    with np.load(folder / INDEX) as index:
        if SOURCE not in index.files:
            return None
        paths = _paths_of(folder, read_manifest(folder), index)
        source = dict(zip(paths, index[SOURCE].tolist(), strict=True))
    return [source[path] for path in images]


def read_manifest(folder):
    """The manifest of a finished cache; an error if there is none, or of another format."""
    path = folder / MANIFEST
    if not path.is_file():
        lost = f"there is no finished cache in {folder}, which has no {MANIFEST}"
        raise FileNotFoundError(f"{lost}: write or finish it with python -m pipelines.cache")
    try:
        manifest = json.loads(read_text(path))
        version = manifest["format"]
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{path} cannot be read ({error}): write the cache again") from error
    expected = f"{path} must have format {FORMAT}: write the cache again"
    check(version == FORMAT, expected, format=version)
    return manifest


def check_files(folder, manifest, checksums=False):
    """Raises an error unless the files have the sizes of the manifest, or its `checksums`."""
    again = "run python -m pipelines.cache as before to write it again"
    shards = {folder / shard["name"]: shard for shard in manifest["shards"]}
    for path in (*shards, folder / INDEX):
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing: {again}")
    for path, shard in shards.items():
        size, expected = path.stat().st_size, shard["bytes"]
        if size != expected:
            raise ValueError(f"{path} must have {expected:,} bytes, not {size:,}: {again}")
    digests = {folder / INDEX: manifest["index_sha256"]}
    if checksums:
        digests |= {path: shard["sha256"] for path, shard in shards.items()}
    for path, digest in progress("Verifying", digests.items(), unit="file"):
        if sha256_of(path) != digest:
            raise ValueError(f"{path} has changed since it was written: {again}")


def sha256_of(path):
    """SHA-256 of a file, as hexadecimal digits."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(2**20):
            digest.update(piece)
    return digest.hexdigest()
