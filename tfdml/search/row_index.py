"""An immutable index of embeddings by the ids of their images."""

import numpy as np

from tfdml.evaluation.faiss_index import FaissIndex, load_faiss

faiss = load_faiss()
APPROXIMATE_FROM = 100_000  # rows; below, an exact query takes a few milliseconds
_PROBED_SHARE = 16  # one cell in 16 is searched
_GROWTH = 4  # factor between wanted and present cells at which they are rebuilt
_EXACT = "IDMap2,Flat"  # without cells
_TRAINING_ROWS = 40  # per cell


class RowIndex(FaissIndex):
    """Rows with ids, and nearest-neighbour search among them.

    The index is immutable: `changed` returns a new one, so concurrent searches are safe.

    Args:
        dim: Length of a row.
        approximate: Whether to search only some cells of the space, from 100,000 rows on.

    Example:
        >>> index = RowIndex(2).changed(add=([7, 9], np.eye(2, dtype=np.float32)))
        >>> ids, distances = index.nearest(np.array([0.0, 0.5], np.float32), 5)
        >>> ids.tolist(), distances.round(3).tolist()
        ([9, 7], [0.5, 1.118])
    """

    def __init__(self, dim, *, approximate=False):
        self.dim, self.approximate = dim, approximate
        self._faiss = faiss.index_factory(dim, _EXACT)

    @property
    def cells(self):
        """Number of cells, of which a query searches some; 0 for exact search."""
        return getattr(self._faiss, "nlist", 0)

    def changed(self, *, remove=(), add=None):
        """A new index without the rows of some ids, and with (ids, rows) to add."""
        index = faiss.clone_index(self._faiss)
        if len(remove):
            # Cells find rows by a table of ids; without it, ids are found by their hash.
            selector = faiss.IDSelectorArray if self.cells else faiss.IDSelectorBatch
            index.remove_ids(selector(np.asarray(remove, np.int64)))
        if add is not None:
            ids, rows = add
            index.add_with_ids(np.ascontiguousarray(rows, np.float32), np.asarray(ids, np.int64))
        return self._with(index)

    def search(self, rows, count, **options):
        """As `FaissIndex.search`, in a sixteenth of the cells."""
        if self.cells:
            probed = max(1, self.cells // _PROBED_SHARE)
            options["params"] = faiss.SearchParametersIVF(nprobe=probed)
        return super().search(rows, count, **options)

    def rows(self, ids):
        """(n, dim) float32, the rows of ids; a RuntimeError if one is unknown."""
        return self._faiss.reconstruct_batch(np.asarray(ids, np.int64))

    def to_bytes(self):
        """The index as (n,) uint8."""
        return faiss.serialize_index(self._faiss)

    @classmethod
    def from_bytes(cls, data, *, approximate=False):
        """The index of bytes from `to_bytes`, rebuilt with or without cells by `approximate`."""
        read = faiss.deserialize_index(data)
        return cls(read.d, approximate=approximate)._with(read)

    def _with(self, index):
        """An index with these options and the rows of a faiss index, with new cells if it grew."""
        other = RowIndex(self.dim, approximate=self.approximate)
        wanted, present = _cells(index.ntotal, self.approximate), getattr(index, "nlist", 0)
        near = wanted and present and 1 / _GROWTH < wanted / present < _GROWTH
        other._faiss = index if near or wanted == present else _in_cells(index, wanted)
        return other


def _cells(rows, approximate):
    """The number of cells for a number of rows: about twice its square root."""
    return 2 ** round(np.log2(2 * rows**0.5)) if approximate and rows >= APPROXIMATE_FROM else 0


def _in_cells(index, cells):
    """An index of the same rows with the given number of cells, or exact for 0."""
    ids = _ids(index)
    rows = index.reconstruct_batch(ids)
    made = faiss.index_factory(index.d, f"IVF{cells},Flat" if cells else _EXACT)
    if cells:
        some = np.random.default_rng(0).permutation(len(rows))[: _TRAINING_ROWS * cells]
        made.train(rows[some])
        made.set_direct_map_type(faiss.DirectMap.Hashtable)  # finds a row by its id
    made.add_with_ids(rows, ids)
    return made


def _ids(index):
    if not hasattr(index, "nlist"):
        return faiss.vector_to_array(index.id_map)
    lists = index.invlists
    sizes = [lists.list_size(cell) for cell in range(index.nlist)]
    views = [faiss.rev_swig_ptr(lists.get_ids(i), size) for i, size in enumerate(sizes) if size]
    return np.concatenate([np.empty(0, np.int64), *views])
