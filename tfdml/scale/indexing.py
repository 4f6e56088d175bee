"""Builds the index of a collection: trained once, filled shard by shard, and resumed."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import time
from typing import Any

from tfdml.checks import check, check_fits
from tfdml.evaluation.faiss_index import as_value_error, load_faiss
from tfdml.files import locked, naming, replacing, write_text
from tfdml.quiet import progress, silent
from tfdml.scale import stored_index as stored
from tfdml.scale.checksums import checksums, sealed
from tfdml.scale.collection import Collection
from tfdml.scale.index_loss import losses

faiss = load_faiss()
on_disk: Any = importlib.import_module("faiss.contrib.ondisk")
UNFINISHED = ".index-unfinished"
_CHANGING = {"version", "images", "rows", "shards", "training_rows"}  # as the collection changes
_JOB, _TRAINED = "job.json", "trained.faiss"
_TRAINING_ROWS = 40  # for each cell; faiss warns below 39
_LEAST_TRAINING_ROWS = 2**16
_TRAINING_BYTES = 2**28  # of the default sample, at most
_PART_BYTES = 2**27  # of embeddings in a part of an index with cells
_SAVED_EVERY = 60.0  # seconds of work that a crash may lose
_SAVING_RATIO = 20  # least of that time to the time of saving


def index(folder, *, report, **options):
    """Builds the index of a collection with the options of `build`, and says what it is."""
    collection = Collection(folder)
    taken = f"another job works on {collection.folder}: wait for its end, or stop it"
    with locked(collection.folder, taken):
        built = build(collection, **options)
        index = stored.StoredIndex(collection)
    each = index.bytes / max(1, len(index))
    words = "Index" if built else "The index was there"
    print(f"{words}: {len(index):,} images, {each:,.1f} bytes each: {index.folder}")
    if index.parameters:
        print(f"Searches use {index.parameters}")
    if report:
        print_losses(collection, index, options["seed"])


def print_losses(collection, index, seed):
    """Prints what the index loses."""
    found = losses(collection, index, seed=seed)
    counts = list(found[0].recall)
    print("The share of the K nearest images that is lost, and the median time of a query:")
    print(f"{'':16}" + "".join(f"{f'K={count}':>9}" for count in counts) + f"{'ms':>9}")
    for parameters, recall, milliseconds in found:
        lost = "".join(f"{1 - recall[count]:9.4f}" for count in counts)
        chosen = " (stored)" if parameters == index.parameters else ""
        print(f"{parameters or index.factory:16}{lost}{milliseconds:9.2f}{chosen}")


def damaged_files(folder):
    """The number of files, of those without a checksum, and a sentence for each damaged one."""
    collection, damaged, unknown = Collection(folder), [], 0
    files, index = [*collection.files.values()], collection.folder / stored.FOLDER
    if index.exists():
        files += stored.checked_files(index, stored.about_of(index)).values()
    for file in progress("Checking", files, unit="file"):
        unknown += not file.known
        try:
            file.check()
        except (ValueError, OSError) as error:
            damaged.append(str(error))
    return len(files), unknown, damaged


def build(collection, factory, *, parameters=None, training_rows=None, seed=0, overwrite=False):
    """Builds what is missing of the index of a `Collection`; returns whether anything was."""
    collection.check_complete()
    made = _made(collection.dim, factory)
    ivf = faiss.try_extract_index_ivf(made)
    cells = ivf.nlist if ivf else 0
    expected = "`factory` must have at most as many cells as there are images; Flat suits a few"
    check(cells <= collection.images, expected, factory=factory, images=collection.images)
    given = parameters
    if given is None:
        parameters = f"nprobe={round(cells**0.5)}" if cells else ""
    elif given:
        with as_value_error({"factory": factory, "parameters": parameters}):
            faiss.ParameterSpace().set_index_parameters(made, parameters)
        visited = {"nprobe": ivf.nprobe, "cells": cells} if ivf else {}
        inside = not ivf or 1 <= ivf.nprobe <= cells
        check(inside, "`nprobe` must be from 1 to the number of cells", **visited)
    if training_rows is None:
        most = max(cells, _TRAINING_BYTES // (4 * collection.dim))
        training_rows = min(max(_TRAINING_ROWS * cells, _LEAST_TRAINING_ROWS), most)
    about = {
        "format": stored.FORMAT,
        "factory": factory,
        **{name: getattr(collection, name) for name in stored.SOURCE},
        "version": collection.version,
        "shards": collection.shards,
        "rows": int(collection.readable().sum()),
        "training_rows": min(training_rows, collection.images),
        "seed": seed,
    }
    expected = f"{collection.folder} must have images that could be read"
    check(about["rows"] > 0, expected, images=collection.images, readable=0)
    final, unfinished = collection.folder / stored.FOLDER, collection.folder / UNFINISHED
    if _is_built(final, about, overwrite):
        if given is not None:
            present = {**stored.about_of(final), "parameters": parameters}
            write_text(final / stored.ABOUT, sealed(present))
        return False
    _check_sizes(unfinished, made, ivf, collection.images)  # before it removes other work
    _begin(unfinished, about)
    with naming(final), as_value_error({"factory": factory, "dim": collection.dim}):
        _train(made, unfinished / _TRAINED, collection, about)
        whole = unfinished / stored.FOLDER
        shutil.rmtree(whole, ignore_errors=True)
        _fill(collection, unfinished, whole)
        about |= {"parameters": parameters, "files": {}}
        for path in whole.iterdir():
            with path.open("rb") as file:
                about["files"][path.name] = checksums(file)
        (whole / stored.ABOUT).write_text(sealed(about), "utf-8")
        shutil.rmtree(final, ignore_errors=True)
        os.rename(whole, final)
    shutil.rmtree(unfinished)
    return True


def _made(dim, factory):
    """The empty index of a factory, which takes ids; a ValueError says why it cannot be built."""
    received = {"factory": factory, "dim": dim}
    with as_value_error(received):
        made = faiss.index_factory(dim, factory)
    ivf = faiss.try_extract_index_ivf(made)
    transforms = isinstance(made, faiss.IndexPreTransform)
    inner = faiss.downcast_index(made.index) if transforms else made
    if ivf is None:
        fits = not isinstance(inner, (faiss.IndexIDMap, faiss.IndexNSG, faiss.IndexNNDescent))
    else:
        lists = faiss.downcast_InvertedLists(ivf.invlists)
        fits = isinstance(inner, faiss.IndexIVF) and isinstance(lists, faiss.ArrayInvertedLists)
        fits &= not isinstance(inner, faiss.IndexIVFPQR)
    expected = "`factory` must be of an index that grows, with cells that stay on disk"
    check(fits, f"{expected}: without IDMap, NSG, RFlat and fs", **received)
    return made if ivf else faiss.IndexIDMap(made)


def _is_built(final, about, overwrite):
    """Whether the index is there; raises a FileExistsError for another one."""
    if not final.exists():
        return False
    try:
        present = {"version": 0}
        present |= stored.about_of(final) if (final / stored.ABOUT).is_file() else {}
    except ValueError:  # that is damaged
        if overwrite:
            return False
        raise
    other = {name: present.get(name) for name in about if present.get(name) != about[name]}
    if other.keys() - (_CHANGING if "version" in other else ()) and not overwrite:
        advice = "remove it, or give --overwrite true"
        raise FileExistsError(f"{final} has an index of other settings: {advice}. It has: {other}")
    return not other


def _begin(unfinished, about):
    """Makes the folder of the work; removes work of other settings and half-written files."""
    job, text = unfinished / _JOB, json.dumps(about)
    if unfinished.exists() and not (job.is_file() and job.read_text("utf-8") == text):
        print("Unfinished work of other settings is removed", flush=True)
        shutil.rmtree(unfinished)
    unfinished.mkdir(exist_ok=True)
    write_text(job, text)
    for path in unfinished.glob("*.unfinished"):
        path.unlink()


def _check_sizes(unfinished, made, ivf, images):
    """Raises an error if the disk, or for an index without cells the memory, is too small."""
    if ivf:
        each = stored.ID_BYTES + ivf.code_size
    else:
        row_bytes = 4 * made.index.d  # at least, of a graph, of which faiss does not say it
        with contextlib.suppress(RuntimeError):
            row_bytes = made.index.sa_code_size()
        each = stored.ID_BYTES + row_bytes
        what = "an index without cells is built in memory, and"
        check_fits(images * each, what, images=images, bytes_per_image=each)
    # The parts, or the index so far, beside the whole.
    there = sum(file.stat().st_size for file in unfinished.rglob("*") if file.is_file())
    _check_room(unfinished.parent, 2 * images * each - there)


def _check_room(folder, needed):
    free = shutil.disk_usage(folder).free
    if needed > free:
        rooms = f"{needed / 1e9:,.2f} GB more, and {free / 1e9:,.2f} GB are free"
        raise OSError(f"the disk of {folder} is too small: the index needs {rooms}")


def _train(made, path, collection, about):
    """Writes the empty trained index, once."""
    if path.exists():
        return
    if not made.is_trained:
        count = about["training_rows"]
        print(f"Training on {count:,} of {collection.images:,} images", flush=True)
        rows = collection.sample(count, about["seed"]).embeddings
        with silent():  # faiss repeats one warning for every part of a code
            made.train(rows)
    _save(made, path)


def _fill(collection, work, whole):
    """Writes an index with all rows to the folder `whole`.

    One with cells is saved in parts, which are merged on disk; another one grows in memory.
    """
    trained = str(work / _TRAINED)
    index = faiss.read_index(trained)
    has_cells = faiss.try_extract_index_ivf(index) is not None
    part = max(1, _PART_BYTES // (4 * collection.dim * collection.shard_size))
    saved = sorted(work.glob("until-*.faiss"))
    first = int(saved[-1].stem.removeprefix("until-")) if saved else 0
    if saved and not has_cells:
        index = faiss.read_index(str(saved[-1]))
    done, due = first * collection.shard_size, time.monotonic() + _SAVED_EVERY
    with progress("Indexing", total=collection.images, done=min(done, collection.images)) as bar:
        for number in range(first, collection.shards):
            _add(index, collection.shard(number))
            end = number + 1
            bar.update(min(end * collection.shard_size, collection.images) - bar.n)
            path, began = work / f"until-{end:09d}.faiss", time.monotonic()
            if has_cells and (end % part == 0 or end == collection.shards):
                _save(index, path)
                index = faiss.read_index(trained)
            elif not has_cells and began > due:
                _save(index, path)
                for other in {*work.glob("until-*.faiss")} - {path}:
                    other.unlink()
                ended = time.monotonic()
                due = ended + max(_SAVED_EVERY, _SAVING_RATIO * (ended - began))
    whole.mkdir()
    if has_cells:
        saved = sorted(work.glob("until-*.faiss"))
        # The merged file is written through memory: on a full disk the process would be killed.
        _check_room(work, sum(path.stat().st_size for path in saved))
        print(f"Merging {len(saved):,} parts", flush=True)
        with silent(1, 2):
            on_disk.merge_ondisk(index, [str(path) for path in saved], str(whole / stored.LISTS))
    faiss.write_index(index, str(whole / stored.DATA))


def _add(index, rows):
    if len(rows.ids):
        index.add_with_ids(rows.embeddings, rows.ids)


def _save(index, path):
    with replacing(path) as unfinished:
        faiss.write_index(index, str(unfinished))
