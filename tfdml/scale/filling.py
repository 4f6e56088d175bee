"""Fills a trained index with the shards of a collection, in bounded memory."""

import shutil
import time

from tfdml.files import replacing
from tfdml.progress import progress
from tfdml.quiet import silent
from tfdml.scale import index as stored
from tfdml.scale.collection import import_needed

_PART_BYTES = 2**27  # of embeddings in a part of an index with cells
_SAVE_EVERY = 60.0  # seconds of adding that a crash may lose, without cells
_SAVE_SHARE = 20  # least ratio of that time to the time of saving


def fill(collection, trained, work, whole):
    """Writes an index with all rows of a collection.

    An index with cells is written in parts of some shards, which are merged on disk. Another one
    grows in memory and is saved from time to time. Either way files tell which shards are added, so
    that no row is added twice.

    Args:
        collection: `Collection`.
        trained: Path of the empty trained index.
        work: Folder of the files to resume from.
        whole: Folder of the index, to be made.

    Returns:
        The number of rows.

    Raises:
        OSError: If the disk is too small for the merged index.
        RuntimeError: Of faiss, such as for a full disk.
    """
    faiss = import_needed("faiss")
    has_cells = faiss.try_extract_index_ivf(faiss.read_index(str(trained))) is not None
    with progress("Indexing", total=collection.images) as bar:
        if has_cells:
            parts = _write_parts(faiss, collection, trained, work, bar)
        else:
            index = _grow(faiss, collection, trained, work, bar)
    whole.mkdir()
    if has_cells:
        from faiss.contrib.ondisk import merge_ondisk

        # The merged file is written through memory: on a full disk the process would be killed.
        check_room(work, sum(path.stat().st_size for path in parts))
        print(f"Merging {len(parts):,} parts", flush=True)
        index = faiss.read_index(str(trained))
        with silent(1, 2):
            merge_ondisk(index, [str(path) for path in parts], str(whole / stored.LISTS))
    faiss.write_index(index, str(whole / stored.DATA))
    return index.ntotal


def check_room(folder, needed):
    """Raises an OSError unless as many bytes are free on the disk of a folder."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        rooms = f"{needed / 1e9:,.2f} GB more, and {free / 1e9:,.2f} GB are free"
        raise OSError(f"the disk of {folder} is too small: the index needs {rooms}")


def _write_parts(faiss, collection, trained, work, bar):
    """Writes the parts that are missing, named after their first shard; returns all paths."""
    shards = max(1, _PART_BYTES // (4 * collection.dim * collection.shard_size))
    paths = []
    for first in range(0, collection.shards, shards):
        last = min(first + shards, collection.shards)
        path = work / f"part-{first:05d}-{last:05d}.faiss"
        paths.append(path)
        if path.exists():
            bar.update(_images(collection, first, last))
            continue
        index = faiss.read_index(str(trained))
        for number in range(first, last):
            _add(index, collection, number, bar)
        with replacing(path) as unfinished:
            faiss.write_index(index, str(unfinished))
    return paths


def _grow(faiss, collection, trained, work, bar):
    """Adds the shards that are missing to the index, which is saved from time to time."""
    saved = sorted(work.glob("until-*.faiss"))
    path = saved[-1] if saved else trained
    index, first = faiss.read_index(str(path)), int(path.stem[6:]) if saved else 0
    bar.update(_images(collection, 0, first))
    began, wait = time.monotonic(), _SAVE_EVERY
    for number in range(first, collection.shards):
        _add(index, collection, number, bar)
        if time.monotonic() - began > wait:
            started, before = time.monotonic(), saved
            saved = [work / f"until-{number + 1:09d}.faiss"]
            with replacing(saved[0]) as unfinished:
                faiss.write_index(index, str(unfinished))
            for old in before:
                old.unlink()
            began = time.monotonic()
            wait = max(_SAVE_EVERY, _SAVE_SHARE * (began - started))
    return index


def _add(index, collection, number, bar):
    ids, embeddings, _ = collection.shard(number)
    if len(ids):
        index.add_with_ids(embeddings, ids)
    bar.update(_images(collection, number, number + 1))


def _images(collection, first, last):
    """Number of images of shards `first` to `last`."""
    size = collection.shard_size
    return min(last * size, collection.images) - first * size
