"""Changes of a collection: images are added, embedded again or removed.

A changed shard is written beside the one before, and then a manifest that names it: a reader sees
the collection before or after. Files that the manifest does not name are removed by the next
change: an open collection can be read until the second change from then.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfdml.checks import check
from tfdml.files import LOCK, copies, locked, replacing, write_text
from tfdml.quiet import progress
from tfdml.scale.checksums import sealed
from tfdml.scale.collection import Collection
from tfdml.scale.layout import CHANGED_FORMAT, MANIFEST, REMOVED, SHARDS, STAMP, STATE, shard_name
from tfdml.scale.listed_images import Listing, list_images
from tfdml.scale.storage import NO_FILE, NOT_OPENED
from tfdml.scale.writing import check_some_are_read, embedded, encoded, in_batches, rows_of

PRESENT = f"error is distinct from '{REMOVED}'"  # in SQL
_EMBED, _KEEP, _REMOVE = range(3)  # what is done to the embedding of a row


class Changes(NamedTuple):
    """Numbers of images that a change was of."""

    added: int
    embedded_again: int
    removed: int
    unreadable: int  # of those added and embedded again
    copies: list  # pairs of paths: an added image, and another with the same content


def add(folder, model, images):
    """Adds those images of a list that a collection does not have; a path is added once.

    After a stop, the same call adds the rest.

    Args:
        folder: Folder of the collection.
        model: `ImageModel` with the `fingerprint` of the model that made the embeddings.
        images: Folder, pattern or Parquet file, as of `python -m tfdml.scale embed`; or `Listing`.

    Returns:
        `Changes`.

    Raises:
        BlockingIOError: If another process writes to the collection.
        ValueError: If another model made the embeddings, or a column of the list is of another type
            than in the collection.
    """
    return update(folder, model, images, only_add=True)


def update(folder, model, images, *, only_add=False, watch=None):
    """Makes a collection that of a list: adds and removes images, and embeds changed ones again.

    Arguments, value and errors are those of `add`. A file of this machine has changed if it was
    written or replaced after its embedding began, not if it is gone; files at URLs, and those that
    could not be read, are embedded again each time. Columns that the list does not have, labels
    too, stay as they are. Images keep their ids.

    Where the list and the collection have a column `file_stamp`, such as the ETag at a URL, it
    decides instead: an image with another stamp is a new one, with a new id, and takes the place of
    the one before. Others are only embedded again if their file could not be opened.

    `watch` is called with the numbers of images embedded and to embed, at first and after every
    batch. An error that it raises ends the change; the shards before are kept.
    """
    with _only_writer(folder) as collection:
        collection.check_model(model.fingerprint)
        there = collection.present()
        listed = (images if isinstance(images, Listing) else list_images(images)).table()
        try:
            pa.unify_schemas([there.schema, listed.schema])
        except pa.ArrowException as error:
            expected = f"the columns of {images} must be of the types in {folder}"
            raise ValueError(f"{expected} ({error})") from error
        _, first = np.unique(listed["path"].to_numpy(), return_index=True)
        listed = listed.take(np.sort(first))
        known = np.asarray(pc.is_in(listed["path"], there["path"].combine_chunks()))
        expected = f"{images} must have some image of {folder}: is it the right list?"
        embedded_before = there["error"].null_count  # of others, there may be none left
        check(only_add or known.any() or not embedded_before, expected, listed=len(listed))
        stamped = not only_add and all(STAMP in rows.column_names for rows in (there, listed))
        names, names_there = (_names(rows, stamped) for rows in (listed, there))
        places = pc.index_in(names, names_there)
        new = np.asarray(places.is_null())
        ids = collection.images + np.cumsum(new) - 1
        old = there.take(places.drop_null())
        ids[~new] = old["id"].to_numpy()
        for name in set(there.column_names) - {*STATE}:
            if name not in listed.column_names or listed[name].null_count == len(listed):
                kept = there[name].combine_chunks().take(places)
                listed = listed.select([n for n in listed.column_names if n != name])
                listed = listed.append_column(name, kept)
        chosen, tasks, gone = new, np.where(new, _EMBED, _KEEP), there.slice(0, 0)
        if not only_add:
            changed = _changed_files(old, collection, stamped)
            tasks[~new] = np.where(changed, _EMBED, _KEEP)
            chosen = tasks == _EMBED
            chosen[~new] |= _other_columns(listed.filter(~new), old)
            gone = there.filter(pc.invert(pc.is_in(names_there, names)))
        listed = listed.append_column("id", pa.array(ids)).filter(chosen)
        rows = pa.concat_tables([listed, gone], promote_options="default")
        tasks = np.append(tasks[chosen], np.full(len(gone), _REMOVE))
        unreadable = _write(collection, rows, tasks, model, watch=watch)
        added = rows["path"].filter(pc.greater_equal(rows["id"], collection.images)).to_pylist()
        alike = list(copies(added, there["path"].to_pylist())) if added else []
        embedded_again = int((tasks == _EMBED).sum()) - len(added)
        removed = int((tasks == _REMOVE).sum())
        return Changes(len(added), embedded_again, removed, unreadable, alike)


def remove(folder, where):
    """Removes the images that meet a condition in SQL, all at once; returns their number.

    Errors are those of `Collection.matching`, and a BlockingIOError if another process writes.
    """
    with _only_writer(folder) as collection:
        there = collection.present()
        gone = there.filter(pc.is_in(there["id"], pa.array(collection.matching(where, PRESENT))))
        _write(collection, gone, np.full(len(gone), _REMOVE), at_once=True)
        return len(gone)


@contextlib.contextmanager
def _only_writer(folder):
    """The `Collection` of a folder, locked, and without files that its manifest does not name."""
    collection = Collection(folder)
    with locked(collection.folder, f"another process is writing to {folder}"):
        collection = Collection(folder)  # as the last writer left it
        collection.check_complete()
        shards = collection.folder / SHARDS
        shards.mkdir(exist_ok=True)
        for path in shards.iterdir():
            if f"{SHARDS}/{path.name}" not in collection.files:
                path.unlink()
        yield collection


def _names(rows, stamped):
    """What distinguishes images: their paths, and the stamps of their files if there are any."""
    names = ["path", STAMP] if stamped else ["path"]
    columns = [rows[name].cast(pa.string()).combine_chunks() for name in names]
    return pc.binary_join_element_wise(*columns, "\n", null_handling="replace")


def _changed_files(rows, collection, stamped):
    """(n,) booleans, which files may have changed since they were embedded, or could not be."""
    if stamped:  # what has changed has another name
        errors = [error or "" for error in rows["error"].to_pylist()]
        return np.array([error.startswith((NO_FILE, NOT_OPENED)) for error in errors], bool)
    times = [collection.manifest.get("began", 0), *collection.manifest.get("changes", [])]
    versions = np.zeros(len(rows), np.int64)
    if "version" in rows.column_names:
        versions = rows["version"].fill_null(0).to_numpy()
    written = np.array([_written(path) for path in rows["path"].to_pylist()], float)
    return rows["error"].is_valid().to_numpy() | (written >= np.array(times)[versions])


def _written(path):
    """When a file was written or replaced, in ns; infinity at a URL, -infinity if it is gone."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return np.inf if "://" in path else -np.inf
    return max(found.st_mtime_ns, found.st_ctime_ns)


def _other_columns(rows, others):
    """(n,) booleans, whether a column of rows has another value than that of others."""
    differ = np.zeros(len(rows), bool)
    for name in rows.column_names:
        there = others[name] if name in others.column_names else pa.nulls(len(rows))
        pairs = zip(rows[name].to_pylist(), there.to_pylist(), strict=True)
        differ |= np.array([a != b and not (a != a and b != b) for a, b in pairs], bool)
    return differ


def _write(collection, rows, tasks, model: Any = None, *, at_once=False, watch=None):
    """Writes the shards of rows, and a manifest after each or, `at_once`, in the end.

    Returns the number of rows that could not be embedded.
    """
    manifest, unreadable = dict(collection.manifest), 0
    known, names = manifest.get("files", {}), [*collection.files]
    began = (collection.folder / LOCK).stat().st_mtime_ns  # by the clock of the file system
    changes = manifest["changes"] = [*manifest.get("changes", []), began]
    manifest["format"], files = CHANGED_FORMAT, {name: known.get(name) for name in names}
    order = np.argsort(rows["id"].to_numpy(), kind="stable")
    rows, tasks = rows.take(order), tasks[order]
    numbers = rows["id"].to_numpy() // collection.shard_size
    done, total = 0, int(np.count_nonzero(tasks == _EMBED))
    watch = watch or (lambda done, total: None)
    watch(done, total)
    with progress("Embedding", total=total) as bar:
        for number in np.unique(numbers).tolist():
            part, todo = rows.filter(numbers == number), tasks[numbers == number]
            gone = part["id"].filter(todo == _REMOVE).to_numpy()
            no_rows = np.zeros((len(gone), collection.dim))
            fresh = [rows_of(gone, no_rows, [REMOVED] * len(gone))]
            chosen = part.filter(todo == _EMBED)
            if len(chosen):
                pieces = in_batches(chosen["id"].to_pylist(), chosen["path"], model.batch_size)
                for table in embedded(model, pieces):
                    fresh.append(table)
                    bar.update(len(table))
                    done += len(table)
                    watch(done, total)
            fresh = pa.concat_tables(fresh)
            errors = fresh["error"][len(gone) :]
            if STAMP not in rows.column_names:  # else the files were there when they were listed
                check_some_are_read(chosen["path"], errors)
            unreadable += len(errors) - errors.null_count
            old, name = part.slice(0, 0), shard_name(number, len(changes))
            if number < collection.shards:
                old = collection.read(number)
                del files[names[number]]
            content, files[name] = encoded(_merged(old, part, fresh, len(changes)))
            with replacing(collection.folder / name) as unfinished:
                unfinished.write_bytes(content)
            images = max(manifest["images"], part["id"][-1].as_py() + 1)
            shards = -(-images // collection.shard_size)
            manifest |= {"images": images, "shards": shards, "files": files}
            if not at_once:
                write_text(collection.folder / MANIFEST, sealed(manifest))
    if at_once and len(rows):
        write_text(collection.folder / MANIFEST, sealed(manifest))
    return unreadable


def _merged(old, part, fresh, version):
    """The rows of a shard: those of `old`, but `part` with `fresh` embeddings where there are."""
    fresh = fresh.append_column("version", pa.repeat(pa.scalar(version, pa.int32()), len(fresh)))
    is_kept = pc.is_in(old["id"], part["id"])
    stay = pc.invert(pc.is_in(old["id"], fresh["id"]))
    kept = old.filter(pc.and_(is_kept, stay))
    kept = kept.select([name for name in fresh.column_names if name in kept.column_names])
    rows = pa.concat_tables([fresh, kept], promote_options="default").sort_by("id")
    for name in part.column_names:
        if name not in STATE:
            rows = rows.append_column(name, part[name])
    tables = [old.filter(pc.invert(is_kept)), rows]
    return pa.concat_tables(tables, promote_options="default").sort_by("id")
