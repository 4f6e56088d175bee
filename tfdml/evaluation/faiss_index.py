"""The library faiss, an optional dependency, and its indices."""

import contextlib
import re
from typing import Any

import numpy as np

_PLACE = r"^Error in .* at \S+:\d+: (Error: '.*' failed: )?"


def load_faiss() -> Any:
    """The faiss module; an ImportError says what to install."""
    try:
        import faiss
    except ImportError as error:
        needed = "faiss: pip install -e '.[search]', or only faiss-cpu"
        raise ImportError(f"approximate search requires {needed}") from error
    return faiss


@contextlib.contextmanager
def as_value_error(received):
    """Turns an error of faiss into a ValueError with the received {name: value}."""
    try:
        yield
    except RuntimeError as error:  # its message begins with a location in the source of faiss
        cause = re.sub(_PLACE, "", str(error), flags=re.DOTALL)
        values = ", ".join(f"{name}={value!r}" for name, value in received.items())
        raise ValueError(f"faiss rejects the index ({cause}). Received: {values}") from error


class FaissIndex:
    """Rows with ids in an index of faiss, compared by Euclidean distance."""

    _faiss: Any

    def __len__(self):
        return self._faiss.ntotal

    def search(self, rows, count, **options):
        """The (n, count) int64 ids nearest to (n, dim) rows, -1 for none, and their distances."""
        squared, ids = self._faiss.search(np.ascontiguousarray(rows, np.float32), count, **options)
        return ids, np.sqrt(np.maximum(squared.astype(np.float64), 0))

    def nearest(self, row, count):
        """The ids of the rows nearest to one (dim,) row, at most `count`, and their distances."""
        ids, distances = self.search(row[None], max(1, min(count, len(self))))
        found = ids[0] >= 0
        return ids[0, found], distances[0, found]
