"""Seconds of a call."""

import time


def seconds_of(work):
    """Wall and CPU seconds of a call."""
    start, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - cpu
