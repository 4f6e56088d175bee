"""The index of a collection, memory-mapped."""

from __future__ import annotations

import functools
import pathlib

import numpy as np

from tfdml.checks import check, check_type
from tfdml.evaluation.approximate import as_value_error
from tfdml.quiet import silent
from tfdml.scale.checksums import CheckedFile, opened
from tfdml.scale.collection import import_needed

FORMAT = 1  # of `index.json`
FOLDER = "index"  # in that of the collection
ABOUT, DATA, LISTS, TEXTS = "index.json", "index.faiss", "index.ivfdata", "list.arrow"
_KEYS = ("factory", "parameters", "list", "model", "dim", "images")
ID_BYTES = 8  # of a row in the index
_REMEDY = "build the index again, with --overwrite true"


class StoredIndex:
    """The nearest images of a collection, found by the faiss index in its folder.

    The index stays on disk: a query reads the cells that it visits, through the cache of the
    operating system. Its distances are Euclidean, to the rows as the index stores them: rounded by
    `SQ8` and `PQ`. Cells, paths and labels are compared with their checksums before they are first
    used, the rest of the index when it is opened.

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
        ValueError: If it is not of these images and this model, is damaged, cannot be read, or
            faiss rejects the parameters; later also if a cell, or the paths, are damaged.
        ImportError: If faiss or pyarrow is not installed.
    """

    def __init__(self, collection, *, parameters=None):
        faiss = import_needed("faiss")
        import_needed("pyarrow")
        self.folder = collection.folder / FOLDER
        about = about_of(self.folder)
        for name in ("list", "model", "dim", "images"):
            made_of, now = about.get(name), getattr(collection, name)
            expected = f"{self.folder} must be an index of these embeddings: build it again"
            check(made_of == now, expected, **{name: now, "of_index": made_of})
        self.factory = about["factory"]
        files = (self.folder / name for name in (DATA, LISTS))
        self.bytes = sum(file.stat().st_size for file in files if file.exists())
        self._files = checked_files(self.folder, about)
        for file in self._files.values():
            file.check_size()
        self._files[DATA].check()
        with silent(1, 2), as_value_error({"index": str(self.folder)}):
            self._faiss = faiss.read_index(str(self.folder / DATA), self._flags(faiss))
        self._ivf = faiss.downcast_index(faiss.try_extract_index_ivf(self._faiss))
        self.cells = getattr(self._ivf, "nlist", 0)
        self._unchecked = np.full(self.cells, self.cells and self._files[LISTS].known)
        self.dim = self._faiss.d
        self.set_parameters(about["parameters"] if parameters is None else parameters)

    def __len__(self):
        return self._faiss.ntotal

    def _flags(self, faiss):
        """How faiss opens the index: its rows stay on disk."""
        if (self.folder / LISTS).exists():
            return faiss.IO_FLAG_READ_ONLY | faiss.IO_FLAG_ONDISK_SAME_DIR
        return getattr(faiss, "IO_FLAG_MMAP_IFC", 0)  # since faiss 1.11; else read into memory

    def set_parameters(self, parameters):
        """Changes the search parameters, such as "nprobe=16"; none for an empty text."""
        check_type(
            isinstance(parameters, str), "`parameters` must be a text", parameters=parameters
        )
        if parameters:
            with as_value_error({"index": self.factory, "parameters": parameters}):
                space = import_needed("faiss").ParameterSpace()
                space.set_index_parameters(self._faiss, parameters)
        self.parameters = parameters

    def search(self, rows, count):
        """The images nearest to rows.

        Args:
            rows: (n, dim) float32.
            count: Images to find for each.

        Returns:
            (n, count) int64 ids, nearest first, -1 where no more were found, and the (n, count)
            float64 distances.
        """
        shape = np.shape(rows)
        check(shape[1:] == (self.dim,), f"`rows` must be (n, {self.dim})", shape=shape)
        rows = np.ascontiguousarray(rows, np.float32)
        with as_value_error({"index": self.factory, "count": count}):
            if self._unchecked.any():
                self._check_cells(rows)
            squared, ids = self._faiss.search(rows, count)
        return ids, np.sqrt(np.maximum(squared.astype(np.float64), 0))

    def _check_cells(self, rows):
        """Checks the cells that a search for these rows visits for the first time."""
        faiss = import_needed("faiss")
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

    def nearest(self, row, count):
        """The ids of the images nearest to one (dim,) row, at most `count`, and their distances."""
        ids, distances = self.search(row[None], min(count, len(self)))
        return ids[0][ids[0] >= 0], distances[0][ids[0] >= 0]

    def text(self, key):
        """The path and the label, which may be None, of an id."""
        return self._texts["path"][key].as_py(), self._texts["label"][key].as_py()

    @functools.cached_property
    def _texts(self):
        arrow = import_needed("pyarrow")
        self._files[TEXTS].check()
        try:
            with arrow.memory_map(str(self.folder / TEXTS)) as file:
                return arrow.ipc.open_file(file).read_all()
        except arrow.ArrowException as error:
            raise ValueError(f"{self.folder / TEXTS} is damaged ({error}): {_REMEDY}") from error


def checked_files(folder, about):
    """{name: `CheckedFile`} of the files of an index."""
    known = about.get("files", {})
    has_cells = LISTS in known or (folder / LISTS).exists()
    names = [DATA, *[LISTS] * has_cells, TEXTS]
    return {name: CheckedFile(folder / name, known.get(name), _REMEDY) for name in names}


def about_of(folder):
    """What `index.json` says of an index.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If it is damaged, incomplete or of another format.
    """
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
