"""Batches to send, and their answers in order, several under way at once."""

from collections import deque
from concurrent.futures import ThreadPoolExecutor

_MOST_BYTES = 2**26  # of a batch, far below the 2 GB that a message can hold


def batches_of(images, batch_size):
    """Lists of images of one kind.

    Args:
        images: Iterable of `Image`, or of `ImageError`: what could not be read.
        batch_size: Most images of a list.

    Yields:
        A list of at most `batch_size` images and 64 MB (or of one that is larger), all encoded or
        none; an error stands in a list of its own.
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
    """What a function gives for every item, in their order.

    Args:
        function: Called in threads.
        items: Iterable; only `in_flight` items ahead of the results are taken from it.
        in_flight: Most calls at once.

    Yields:
        The results. The error of a call is raised in its place.
    """
    with ThreadPoolExecutor(in_flight) as pool:
        waiting = deque()
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) == in_flight:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
