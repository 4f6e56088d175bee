"""Calls in threads."""

from collections import deque
from concurrent.futures import ThreadPoolExecutor


def in_order(function, items, in_flight):
    """Yields the results of calls in threads, in order; reads at most `in_flight` items ahead."""
    pool, waiting = ThreadPoolExecutor(in_flight), deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) == in_flight:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
