"""The index of a collection, memory-mapped."""

from __future__ import annotations

import functools
import pathlib

import numpy as np

from tfdml.checks import check
from tfdml.evaluation.faiss_index import as_value_error, load_faiss
from tfdml.quiet import silent
from tfdml.scale.checksums import CheckedFile, opened
from tfdml.scale.collection import Rows

faiss = load_faiss()
FORMAT = 1  # of `index.json`
FOLDER = "index"  # in that of the collection
ABOUT, DATA, LISTS = "index.json", "index.faiss", "index.ivfdata"
SOURCE = ("list", "model", "dim", "images")  # attributes of the collection that it is of
_FEW = 2**16  # rows among which the nearest are found without the index
_CONDITIONS = 4  # whose rows are kept in memory
_KEYS = ("factory", "parameters", *SOURCE)
ID_BYTES = 8  # of a row in the index
_REMEDY = "build the index again, with --overwrite true"


class StoredIndex:
    """The nearest images of a collection, found by the faiss index in its folder.

    The index stays on disk: a query reads the cells that it visits. Its distances are to the rows
    as the index stores them: rounded by `SQ8` and `PQ`. Cells are compared with their checksums
    before they are first used, the rest of the index when it is opened. Images that were added or
    embedded again since it was built are compared one by one.

    Args:
        collection: `Collection`; its folder must have an index (`python -m tfdml.scale index`).
        parameters: Search parameters, as `faiss.ParameterSpace` reads them, such as "nprobe=16".
            Default: those that the index was built with.

    Attributes:
        factory: The string of `faiss.index_factory` that it was made by.
        parameters: The search parameters.
        cells: Number of cells, of which a query visits `nprobe`; 0 for an index without cells.
        bytes: Size of its files, without that of the paths and labels.

    Raises:
        FileNotFoundError: If there is no index.
        ValueError: If it is of other images or another model, is damaged, or faiss rejects the
            parameters; later also if a cell, or the paths, are damaged.
    """

    def __init__(self, collection, *, parameters=None):
        self.folder = collection.folder / FOLDER
        about = about_of(self.folder)
        expected = f"{self.folder} must be an index of these embeddings: build it again"
        for name in SOURCE:
            made_from, now = about.get(name), getattr(collection, name)
            grown = name == "images" and made_from < now
            check(made_from == now or grown, expected, **{name: now, "index": made_from})
        self.factory, self._collection = about["factory"], collection
        changed = collection.changed_since(about.get("version", 0))
        readable = collection.readable() if len(changed) else np.ones(collection.images, bool)
        fresh = changed[readable[changed]]
        self._fresh = Rows(fresh, collection.rows(fresh))
        self._usable = None  # (images,) booleans: rows of the index that are as they were
        if len(changed):
            self._usable = np.ones(collection.images, bool)
            self._usable[changed] = False
        self._files = checked_files(self.folder, about)
        for file in self._files.values():
            file.check_size()
        self._files[DATA].check()
        paths = [self._files[name].path for name in (DATA, LISTS) if name in self._files]
        self.bytes = sum(path.stat().st_size for path in paths)
        flags = getattr(faiss, "IO_FLAG_MMAP_IFC", 0)  # since faiss 1.11; else read into memory
        if LISTS in self._files:
            flags = faiss.IO_FLAG_READ_ONLY | faiss.IO_FLAG_ONDISK_SAME_DIR
        with silent(1, 2), as_value_error({"index": str(self.folder)}):
            self._faiss = faiss.read_index(str(self.folder / DATA), flags)
        self._count = int(readable.sum()) if len(changed) else self._faiss.ntotal
        self._ivf = faiss.downcast_index(faiss.try_extract_index_ivf(self._faiss))
        self.cells = getattr(self._ivf, "nlist", 0)
        self._unchecked = np.full(self.cells, self.cells and self._files[LISTS].known)
        self._matching = functools.lru_cache(_CONDITIONS)(self._find)
        self.set_parameters(about["parameters"] if parameters is None else parameters)

    def set_parameters(self, parameters):
        """Changes the search parameters, such as "nprobe=16"; none for an empty text."""
        if parameters:
            with as_value_error({"index": self.factory, "parameters": parameters}):
                faiss.ParameterSpace().set_index_parameters(self._faiss, parameters)
        self.parameters = parameters

    def __len__(self):
        return self._count

    def search(self, rows, count, where=""):
        """The (n, count) int64 ids nearest to (n, dim) rows, -1 for none, and their distances.

        `where` is a condition in SQL on the images, as `Collection.matching` reads it. Up to 65,536
        images that meet it are all compared with the rows; of more, the index names the nearest.
        """
        rows = np.ascontiguousarray(rows, np.float32)
        fresh, usable = self._fresh, self._usable
        if where:
            matching, few = self._matching(where)
            if few is not None:
                return _nearest(rows, few, count)
            usable = matching if usable is None else usable & matching
            fresh = Rows(*(column[matching[fresh.ids]] for column in fresh))
        ids, squared = self._indexed(rows, count, usable)
        if len(fresh.ids):
            more, distances = _nearest(rows, fresh, count)
            ids, squared = np.hstack([ids, more]), np.hstack([squared, distances**2])
            order = np.argsort(np.where(ids < 0, np.inf, squared), axis=1, kind="stable")
            ids, squared = (np.take_along_axis(a, order, 1)[:, :count] for a in (ids, squared))
        return ids, np.sqrt(np.maximum(squared, 0))

    def nearest(self, row, count, where=""):
        """The ids of the rows nearest to one (dim,) row, at most `count`, and their distances."""
        ids, distances = self.search(row[None], max(1, min(count, len(self))), where)
        found = ids[0] >= 0
        return ids[0, found], distances[0, found]

    def _indexed(self, rows, count, usable):
        """As `search`, with squared distances, of the index alone; `usable` are masked ids."""
        asked, most = count, max(count, self._faiss.ntotal)
        while True:
            with as_value_error({"index": self.factory, "count": count}):
                if self._unchecked.any():
                    self._check_cells(rows)
                squared, ids = self._faiss.search(rows, asked)
            squared = squared.astype(np.float64)
            if usable is None:
                return ids, squared
            left = (ids >= 0) & usable[ids]
            if asked == most or ((left.sum(axis=1) >= count) | (ids[:, -1] < 0)).all():
                order = np.argsort(~left, axis=1, kind="stable")
                ids, squared = np.where(left, ids, -1), np.where(left, squared, np.inf)
                return tuple(np.take_along_axis(a, order, 1)[:, :count] for a in (ids, squared))
            asked = min(4 * asked, most)

    def _find(self, where):
        """Of the images that meet a condition, (images,) booleans, and their `Rows` if few."""
        ids = self._collection.matching(where)
        mask = np.zeros(self._collection.images, bool)
        mask[ids] = True
        return mask, Rows(ids, self._collection.rows(ids)) if len(ids) <= _FEW else None

    def _check_cells(self, rows):
        """Checks the cells that queries visit for the first time."""
        if hasattr(self._faiss, "chain"):
            turned = self._faiss.apply_chain(len(rows), faiss.swig_ptr(rows))
            rows = faiss.rev_swig_ptr(turned, len(rows) * self._ivf.d).reshape(-1, self._ivf.d)
        _, cells = self._ivf.quantizer.search(rows, self._ivf.nprobe)
        visited = np.unique(cells[cells >= 0])
        on_disk = faiss.downcast_InvertedLists(self._ivf.invlists).lists
        for cell in visited[self._unchecked[visited]].tolist():
            place = on_disk.at(cell)
            size = place.capacity * (self._ivf.code_size + ID_BYTES)
            self._files[LISTS].check(place.offset, place.offset + size)
            self._unchecked[cell] = False


class ExactIndex:
    """The nearest images of a collection without an index: all are compared, in memory.

    Args:
        rows: The `Rows` of all images.
        matching: Function of a condition in SQL that returns the ids of the images that meet it.

    Attributes:
        factory: As of a `StoredIndex`.
    """

    factory = "Flat"

    def __init__(self, rows, matching):
        self._rows = rows
        self._matching = functools.lru_cache(_CONDITIONS)(matching)

    def __len__(self):
        return len(self._rows.ids)

    def nearest(self, row, count, where=""):
        """As `StoredIndex.nearest`."""
        among = self._rows
        if where:
            chosen = np.isin(among.ids, self._matching(where))
            among = Rows(*(column[chosen] for column in among))
        ids, distances = _nearest(row[None], among, min(count, len(among.ids)))
        return ids[0], distances[0]


def _nearest(rows, among, count):
    """The (n, count) ids nearest to rows among `Rows`, -1 for none, and their distances."""
    ids, squared = np.full((len(rows), count), -1), np.full((len(rows), count), np.inf)
    found = min(count, len(among.ids))
    if found:
        near, places = faiss.knn(rows, among.embeddings, found)
        ids[:, :found], squared[:, :found] = among.ids[places], near
    return ids, np.sqrt(np.maximum(squared, 0))


def checked_files(folder, about):
    """{name: `CheckedFile`} of the files of an index."""
    known = about.get("files", {})
    has_cells = LISTS in known or (folder / LISTS).exists()
    names = [DATA, *[LISTS] * has_cells]
    return {name: CheckedFile(folder / name, known.get(name), _REMEDY) for name in names}


def about_of(folder):
    """What `index.json` says of an index; an error if there is none, or it is damaged."""
    path = pathlib.Path(folder) / ABOUT
    if not path.is_file():
        made_by = "`python -m tfdml.scale index` makes it"
        raise FileNotFoundError(f"there is no index at {folder}: {made_by}")
    about = opened(path.read_bytes(), path, _REMEDY)
    made_by = about.get("format")
    check(made_by == FORMAT, f"{path} must be of the format {FORMAT}", format=made_by)
    missing = [name for name in _KEYS if name not in about]
    check(not missing, f"{path} is damaged: {_REMEDY}", missing=missing)
    return about
