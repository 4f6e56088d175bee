"""The images that `python -m pipelines.cache` wrote, and what it wrote of them."""

import hashlib
import json
import pathlib

import numpy as np

from pipelines.augmentation import Augmentation
from pipelines.preprocessing import Preprocessing
from pipelines.records import record_path
from pipelines.split import Dataset, Split

FORMAT = 1
MANIFEST, INDEX = "manifest.json", "index.npz"
PARTS = ("train", "test", "gallery")  # by the numbers that `index.npz` has for them
WARP = ("warp_size", "keep_aspect", "trim_white")


def load(data_dir=None, skip_invalid=False, training=True):
    """A cache of another dataset: its images, at one size, in a few large files.

    The classes, names, super-classes and parts are those of the dataset that it was made of, the
    rows in the same order, so that the batches of a seed have the same images. The sizes of the
    files are checked here; `python -m pipelines.cache --verify` checks all of their bytes.

    Args:
        data_dir: Folder that `python -m pipelines.cache` wrote.
        skip_invalid: Without effect: what could not be read was left out when the cache was made.
        training: Without effect, for the same reason.

    Raises:
        FileNotFoundError: If there is no cache, or files of it are missing.
        ValueError: If the cache is unfinished or its files are not those that were written.
    """
    if data_dir is None:
        raise ValueError(
            "dataset 'cache' needs `data_dir`, a folder that `python -m pipelines.cache` wrote. "
            "Received: data_dir=None"
        )
    folder = pathlib.Path(data_dir).expanduser()
    manifest = read_manifest(folder)
    check_files(folder, manifest)
    with np.load(folder / INDEX) as index:
        rows = {name: index[name] for name in index.files}
    files = [str(folder / shard["name"]) for shard in manifest["shards"]]
    places = zip(rows["shard"], rows["offset"], rows["length"], strict=True)
    paths = np.array([record_path(files[shard], *place) for shard, *place in places])
    class_names = {int(label): name for label, name in manifest["class_names"]} or None
    warped = Preprocessing(**{name: manifest["settings"][name] for name in WARP})
    splits = {}
    for number, part in enumerate(PARTS):
        chosen = rows["part"] == number
        if chosen.any():
            super_labels = rows["super_labels"][chosen] if "super_labels" in rows else None
            splits[part] = Split(
                paths[chosen], rows["labels"][chosen], class_names, super_labels, warped=warped
            )
    return Dataset(
        manifest["settings"]["dataset"],
        image_size=tuple(manifest["image_size"]),
        augmentation=Augmentation(**manifest["augmentation"]),
        preprocessing=warped,
        **splits,
    )


def read_manifest(folder):
    """What a finished cache says of itself.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If it is of no such program, or of another version of it.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no finished cache in {folder}, which has no {MANIFEST}: make it, or finish "
            "it, by python -m pipelines.cache"
        )
    try:
        manifest = json.loads(path.read_text())
        version = manifest["format"]
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{path} cannot be read ({error}): make the cache anew") from error
    if version != FORMAT:
        raise ValueError(
            f"{path} must be of format {FORMAT}: make the cache anew. Received: format={version!r}"
        )
    return manifest


def check_files(folder, manifest, checksums=False):
    """Raises an error unless the files are those that the manifest tells of.

    Args:
        folder: Of the cache.
        manifest: As of `read_manifest`.
        checksums: Whether their bytes are read, all of them, not their sizes alone; shows a
            progress bar if that takes more than two seconds.

    Raises:
        FileNotFoundError: If one is missing.
        ValueError: If one has another size, or other bytes.
    """
    again = "run python -m pipelines.cache as before, which makes it anew"
    for shard in manifest["shards"]:
        path = folder / shard["name"]
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing: {again}")
        size = path.stat().st_size
        if size != shard["bytes"]:
            raise ValueError(f"{path} must have {shard['bytes']:,} bytes, not {size:,}: {again}")
    index = folder / INDEX
    if not index.is_file():
        raise FileNotFoundError(f"{index} is missing: {again}")
    if sha256_of(index) != manifest["index_sha256"]:
        raise ValueError(f"{index} is not the one that was written: {again}")
    if checksums:
        from tqdm import tqdm

        for shard in tqdm(manifest["shards"], desc="Verifying", delay=2, disable=None, unit="file"):
            if sha256_of(folder / shard["name"]) != shard["sha256"]:
                path = folder / shard["name"]
                raise ValueError(f"{path} is not the one that was written: {again}")


def sha256_of(path):
    """Of the bytes of a file, as hexadecimal digits."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(2**20):
            digest.update(piece)
    return digest.hexdigest()
