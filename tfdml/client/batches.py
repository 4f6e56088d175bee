"""Batches of images for requests, and concurrent calls with results in order."""

from collections import deque
from concurrent.futures import ThreadPoolExecutor

_MOST_BYTES = 2**26  # of a batch, far below the 2 GB limit of a message


def batches_of(images, batch_size):
    """Groups images into lists of one kind.

    Args:
        images: Iterable of `Image`, or of `ImageError` for images that could not be read.
        batch_size: Most images of a list.

    Yields:
        A list of at most `batch_size` images and 64 MB (or of one larger image), all encoded or
        none; or a list with a single error.
    """
    batch, size, kind = [], 0, None
    for image in images:
        failed = isinstance(image, Exception)
        kind_here = None if failed else image.is_encoded
        size_here = 0 if failed else image.size
        full = len(batch) == batch_size or size + size_here > _MOST_BYTES
        if batch and (full or failed or kind_here != kind):
            yield batch
            batch, size = [], 0
        batch.append(image)
        size, kind = size + size_here, kind_here
    if batch:
        yield batch


def in_order(function, items, in_flight):
    """Calls a function on every item concurrently; yields the results in order.

    Args:
        function: Called in threads.
        items: Iterable; read at most `in_flight` items ahead of the results.
        in_flight: Most calls at once.

    Yields:
        The results. The error of a call is raised at its position.
    """
    with ThreadPoolExecutor(in_flight) as pool:
        waiting = deque()
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) == in_flight:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
