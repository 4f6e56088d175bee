"""The index of a collection, memory-mapped."""

from __future__ import annotations

import json
import pathlib

import numpy as np

from tfdml.checks import check, check_type
from tfdml.evaluation.approximate import as_value_error
from tfdml.quiet import silent
from tfdml.scale.collection import import_needed

FORMAT = 1  # of `index.json`
FOLDER = "index"  # in that of the collection
ABOUT, DATA, LISTS, TEXTS = "index.json", "index.faiss", "index.ivfdata", "list.arrow"


class StoredIndex:
    """The nearest images of a collection, found by the faiss index in its folder.

    The index stays on disk: a query reads the cells that it visits, through the cache of the
    operating system. Its distances are Euclidean, to the rows as the index stores them: rounded by
    `SQ8` and `PQ`.

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
        ValueError: If it is not of these images and this model, cannot be read, or faiss rejects
            the parameters.
        ImportError: If faiss or pyarrow is not installed.
    """

    def __init__(self, collection, *, parameters=None):
        faiss, arrow = import_needed("faiss"), import_needed("pyarrow")
        self.folder = collection.folder / FOLDER
        about = about_of(self.folder)
        for name in ("list", "model", "dim", "images"):
            made_of, now = about.get(name), getattr(collection, name)
            expected = f"{self.folder} must be an index of these embeddings: build it again"
            check(made_of == now, expected, **{name: now, "of_index": made_of})
        self.factory = about["factory"]
        files = (self.folder / name for name in (DATA, LISTS))
        self.bytes = sum(file.stat().st_size for file in files if file.exists())
        with silent(1, 2), as_value_error({"index": str(self.folder)}):
            self._faiss = faiss.read_index(str(self.folder / DATA), self._flags(faiss))
        self.cells = getattr(faiss.try_extract_index_ivf(self._faiss), "nlist", 0)
        self.dim = self._faiss.d
        self.set_parameters(about["parameters"] if parameters is None else parameters)
        with arrow.memory_map(str(self.folder / TEXTS)) as file:
            self._texts = arrow.ipc.open_file(file).read_all()

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
        with as_value_error({"index": self.factory, "count": count}):
            squared, ids = self._faiss.search(np.ascontiguousarray(rows, np.float32), count)
        return ids, np.sqrt(np.maximum(squared.astype(np.float64), 0))

    def nearest(self, row, count):
        """The ids of the images nearest to one (dim,) row, at most `count`, and their distances."""
        ids, distances = self.search(row[None], min(count, len(self)))
        return ids[0][ids[0] >= 0], distances[0][ids[0] >= 0]

    def text(self, key):
        """The path and the label, which may be None, of an id."""
        return self._texts["path"][key].as_py(), self._texts["label"][key].as_py()


def about_of(folder):
    """What `index.json` says of an index.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If it is damaged, or of another format.
    """
    path = pathlib.Path(folder) / ABOUT
    if not path.is_file():
        made_by = "`python -m tfdml.scale index` makes it"
        raise FileNotFoundError(f"there is no index at {folder}: {made_by}")
    try:
        about = dict(json.loads(path.read_text("utf-8")))
    except (ValueError, TypeError) as error:
        again = "build the index again, with --overwrite true"
        raise ValueError(f"{path} is damaged ({error}): {again}") from error
    check(about.get("format") == FORMAT, f"{path} must be of the format {FORMAT}", about=about)
    return about
