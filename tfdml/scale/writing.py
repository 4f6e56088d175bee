"""Embeds the images of a collection, and writes its manifest, its list and the missing shards."""

import contextlib
import io
import itertools
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tfdml.checks import check
from tfdml.quiet import progress
from tfdml.scale.checksums import checksums, opened, sealed
from tfdml.scale.layout import FORMAT, LIST, MANIFEST, SHARDS, shard_name
from tfdml.scale.listed_images import cut
from tfdml.scale.storage import NO_FILE, Folder, fetch_all
from tfdml.threads import in_order

_SURELY = 100  # images that are not all broken
_READING = 2  # pieces read at once, each on all cores, while another is embedded


class CollectionWriter:
    """Writes the embeddings of a collection to a folder or URL; a shard that exists is whole.

    The `identity` of embeddings is their "model", a fingerprint, "dim" and "shard_size", as the
    manifest has them.
    """

    def __init__(self, url):
        self.folder = Folder(url)
        self._checksums = {}  # of the files written by this object

    def check(self, identity, listing=None):
        """Raises a ValueError if the folder holds anything but these embeddings, of the list."""
        names = {name for name in self.folder.names() if not name.startswith(".")}
        if MANIFEST not in names:
            expected = f"{self.folder} must be a new or empty folder"
            check(not names, expected, found=sorted(names)[:5])
            return
        found = self._manifest()
        changes = len(found.get("changes", ()))
        expected = f"{self.folder} was changed since; use `python -m tfdml.scale update`"
        check(not changes, expected, changes=changes)
        given = {"format": FORMAT, **identity} | ({"list": listing.digest} if listing else {})
        other = [key for key, value in given.items() if found.get(key) != value]
        if other:
            wrong = f"{self.folder} holds embeddings of another {other[0]}. Choose another --out"
            go_on = f", or go on with its own: --images {self.folder}/{LIST}"
            raise ValueError(wrong + (go_on if other == ["list"] else ""))

    def begin(self, identity, listing):
        """Writes the manifest and the list, unless they exist; removes what killed writers left."""
        size = self.shard_size = identity["shard_size"]
        self.shards = -(-listing.images // size)
        names = self.folder.names()
        if MANIFEST not in names:
            listed = {"images": listing.images, "shards": self.shards, "list": listing.digest}
            began = {"began": time.time_ns()}
            self._write_manifest({"format": FORMAT, **identity, **listed, **began})
        present = names | {f"{SHARDS}/{name}" for name in self.folder.names(SHARDS)}
        found = self._manifest()
        known = found.get("files", {})
        kept = {name: known[name] for name in known if name in present}
        if kept != known:  # a missing file will be written anew
            self._write_manifest({**found, "files": kept})
        if LIST not in names:
            self.folder.write(LIST, listing.write)
        for inner in ("", SHARDS):
            self.folder.remove_unfinished(inner)

    def missing(self):
        """The numbers of the missing shards."""
        names = {f"{SHARDS}/{name}" for name in self.folder.names(SHARDS)}
        return [number for number in range(self.shards) if shard_name(number) not in names]

    def write_shard(self, number, images, rows):
        """Writes a shard from tables of the paths and labels of its images, and of their rows.

        Raises a ValueError if none of many images could be read, a RuntimeError if there is not one
        row for each image, in order.
        """
        ids, first = rows["id"].to_numpy(), number * self.shard_size
        if not np.array_equal(ids, np.arange(first, first + len(images))):
            raise RuntimeError(f"shard {number} must have one row for each image, in order")
        check_some_are_read(images["path"], rows["error"])
        columns = {"id": rows["id"], "path": images["path"], "embedding": rows["embedding"]}
        columns |= {"label": images["label"], "error": rows["error"]}
        table = pa.table(columns | {n: images[n] for n in images.column_names if n not in columns})
        content, self._checksums[shard_name(number)] = encoded(table)
        self.folder.write(shard_name(number), lambda file: file.write(content))

    def finish(self):
        """Writes the checksums into the manifest; returns the number of images without embedding.

        Shards that an earlier process wrote are read once more. A ValueError names one cut off.
        """
        manifest, unreadable = self._manifest(), 0
        known = {**manifest.get("files", {}), **self._checksums}
        names = [LIST, *map(shard_name, range(manifest["shards"]))]
        for name in progress("Counting", names, unit="file"):
            with self.folder.open(name) as file:
                if name not in known:
                    known[name] = checksums(file)
                if name == LIST:
                    continue
                try:
                    errors = pq.ParquetFile(file).read(["error"])["error"]
                    unreadable += len(errors) - errors.null_count
                except (pa.ArrowException, OSError, KeyError) as error:
                    cause = f"{self.folder}/{name} is damaged ({error})"
                    raise ValueError(f"{cause}: delete it") from error
        files = {name: known[name] for name in names}
        if files != manifest.get("files"):
            self._write_manifest({**manifest, "files": files})
        return unreadable

    def _manifest(self):
        with self.folder.open(MANIFEST) as file:
            return opened(file.read(), f"{self.folder}/{MANIFEST}", "choose another --out")

    def _write_manifest(self, manifest):
        self.folder.write(MANIFEST, lambda file: file.write(sealed(manifest).encode()))


def embed_missing(collection, listing, batch_size, embedded):
    """Embeds and writes the missing shards; `embedded` makes tables of `rows_of` of the pieces."""
    missing, size = set(collection.missing()), collection.shard_size
    shards = (each for each in enumerate(listing.shards(size)) if each[0] in missing)
    shards, asked = itertools.tee(shards)
    images = sum(min(size, listing.images - number * size) for number in missing)
    with (
        contextlib.closing(embedded(_pieces_of(asked, size, batch_size))) as tables,
        progress("Embedding", total=images) as bar,
    ):
        for (number, shard), rows in zip(shards, cut(_counted(tables, bar), size), strict=True):
            collection.write_shard(number, shard, rows)


def embedded(model, pieces):
    """Yields a table of `rows_of` for each of the pieces, of which a few are in memory at once."""

    def read(piece):
        ids, paths = piece
        return ids, model.read(fetch_all(paths))

    for ids, images in in_order(read, pieces, 1 + _READING):
        yield rows_of(ids, *model.embed(*images))


def _pieces_of(shards, shard_size, batch_size):
    """The ids and paths of shards, in pieces of a batch."""
    for number, shard in shards:
        start = number * shard_size
        yield from in_batches(range(start, start + len(shard)), shard["path"], batch_size)


def in_batches(ids, paths, batch_size):
    """Yields ids and a list of their paths, of at most `batch_size` images at once."""
    for first in range(0, len(ids), batch_size):
        some = slice(first, first + batch_size)
        yield ids[some], paths[some].to_pylist()


def _counted(tables, bar):
    for table in tables:
        bar.update(len(table))
        yield table


def encoded(table):
    """The bytes of the file of a shard, and their `checksums`."""
    file = io.BytesIO()
    pq.write_table(table, file, use_dictionary=["label", "error"])
    file.seek(0)
    return file.getbuffer(), checksums(file)


def check_some_are_read(paths, errors):
    """Raises a ValueError if there is an error for each of many images."""
    if len(errors) - errors.null_count == len(paths) >= _SURELY:
        none = f"none of {len(paths):,} images can be read, such as {paths[0]}: {errors[0]}"
        hint = " (is their disk mounted?)" if errors[0].as_py() == NO_FILE else ""
        raise ValueError(none + hint)


def rows_of(ids, embeddings, problems):
    """A table of ids, (n, dim) embeddings, and reasons why there are none, or None."""
    error = pa.array(problems, pa.string())
    missing = error.is_valid()
    read = ~missing.to_numpy(zero_copy_only=False)
    values = pa.array(np.asarray(embeddings, np.float32)[read].reshape(-1))
    ends = np.cumsum(read, dtype=np.int32) * np.int32(embeddings.shape[1])
    # Not of a fixed size, of which pyarrow below 26 cannot keep nulls.
    rows = pa.ListArray.from_arrays(np.append(np.int32(0), ends), values, mask=missing)
    return pa.table([pa.array(ids, pa.int64()), rows, error], ["id", "embedding", "error"])
