"""Parts of a computation in NumPy on all cores."""

import os
from concurrent.futures import ThreadPoolExecutor

from threadpoolctl import threadpool_limits


def in_threads(function, parts):
    """Yields `function(part)` of each part, in their order; each call has one core for itself."""
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(function, parts)
