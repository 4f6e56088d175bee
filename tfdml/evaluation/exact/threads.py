"""Parts of a computation in NumPy on up to 16 cores."""

import os
from concurrent.futures import ThreadPoolExecutor

from threadpoolctl import threadpool_limits

_MOST_THREADS = 16  # each holds a block of scores, and all share one interpreter


def in_threads(function, parts):
    """Yields `function(part)` of each part, in their order; each call has one core for itself."""
    threads = min(os.cpu_count() or 1, _MOST_THREADS)
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(threads) as pool:
        yield from pool.map(function, parts)
