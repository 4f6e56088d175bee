"""Embeds pieces of a collection in this process, on all cores and its first GPU."""

import collections
from concurrent.futures import ThreadPoolExecutor

from tfdml.scale.writing import rows_of

_READING = 2  # pieces read at once, each on all cores, while another is embedded


def embedded(model, pieces):
    """Embeds images, of which a few pieces are in memory at once.

    Args:
        model: `ImageModel`.
        pieces: Iterable of `(ids, paths)`, arrays and lists of equal lengths.

    Yields:
        Tables of `rows_of`, in the order of the pieces.
    """
    reading = collections.deque()
    pool = ThreadPoolExecutor(_READING, "reading")
    try:
        for ids, paths in pieces:
            reading.append((ids, pool.submit(model.read, paths)))
            if len(reading) > _READING:
                yield _embedded(model, *reading.popleft())
        while reading:
            yield _embedded(model, *reading.popleft())
    finally:
        pool.shutdown(cancel_futures=True)


def _embedded(model, ids, read):
    return rows_of(ids, *model.embed(*read.result()))
