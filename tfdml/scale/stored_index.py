"""The index of a collection, memory-mapped."""

from __future__ import annotations

import functools
import pathlib

import numpy as np
import pyarrow as pa

from tfdml.checks import check
from tfdml.evaluation.faiss_index import as_value_error, load_faiss
from tfdml.quiet import silent
from tfdml.scale.checksums import CheckedFile, opened

faiss = load_faiss()
FORMAT = 1  # of `index.json`
FOLDER = "index"  # in that of the collection
ABOUT, DATA, LISTS, TEXTS = "index.json", "index.faiss", "index.ivfdata", "list.arrow"
SOURCE = ("list", "model", "dim", "images")  # attributes of the collection that it is of
_KEYS = ("factory", "parameters", *SOURCE)
ID_BYTES = 8  # of a row in the index
_REMEDY = "build the index again, with --overwrite true"


class StoredIndex:
    """The nearest images of a collection, found by the faiss index in its folder.

    The index stays on disk: a query reads the cells that it visits. Its distances are to the rows
    as the index stores them: rounded by `SQ8` and `PQ`. Cells, paths and labels are compared with
    their checksums before they are first used, the rest of the index when it is opened.

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
            check(made_from == now, expected, **{name: now, "index": made_from})
        self.factory = about["factory"]
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
        self._ivf = faiss.downcast_index(faiss.try_extract_index_ivf(self._faiss))
        self.cells = getattr(self._ivf, "nlist", 0)
        self._unchecked = np.full(self.cells, self.cells and self._files[LISTS].known)
        self.set_parameters(about["parameters"] if parameters is None else parameters)

    def set_parameters(self, parameters):
        """Changes the search parameters, such as "nprobe=16"; none for an empty text."""
        if parameters:
            with as_value_error({"index": self.factory, "parameters": parameters}):
                faiss.ParameterSpace().set_index_parameters(self._faiss, parameters)
        self.parameters = parameters

    def __len__(self):
        return self._faiss.ntotal

    def search(self, rows, count):
        """The (n, count) int64 ids nearest to (n, dim) rows, -1 for none, and their distances."""
        rows = np.ascontiguousarray(rows, np.float32)
        with as_value_error({"index": self.factory, "count": count}):
            if self._unchecked.any():
                self._check_cells(rows)
            squared, ids = self._faiss.search(rows, count)
        return ids, np.sqrt(np.maximum(squared.astype(np.float64), 0))

    def nearest(self, row, count):
        """The ids of the rows nearest to one (dim,) row, at most `count`, and their distances."""
        ids, distances = self.search(row[None], max(1, min(count, len(self))))
        found = ids[0] >= 0
        return ids[0, found], distances[0, found]

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

    def text(self, key):
        """The path and the label, which may be None, of an id."""
        return self._texts["path"][key].as_py(), self._texts["label"][key].as_py()

    @functools.cached_property
    def _texts(self):
        self._files[TEXTS].check()
        try:
            with pa.memory_map(str(self.folder / TEXTS)) as file:
                return pa.ipc.open_file(file).read_all()
        except pa.ArrowException as error:
            raise ValueError(f"{self.folder / TEXTS} is damaged ({error}): {_REMEDY}") from error


def checked_files(folder, about):
    """{name: `CheckedFile`} of the files of an index."""
    known = about.get("files", {})
    has_cells = LISTS in known or (folder / LISTS).exists()
    names = [DATA, *[LISTS] * has_cells, TEXTS]
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
