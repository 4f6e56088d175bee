"""Memory of this process, in bytes, from Linux."""

import ctypes
import pathlib
import threading
import time


def peak_memory():
    """Largest resident size since the start, or since `forget_peak`."""
    return _of("VmHWM:")


def forget_peak():
    """Gives freed memory back, and makes what is in use the peak; returns it."""
    ctypes.CDLL(None).malloc_trim(0)  # else arrays that were freed would count
    pathlib.Path("/proc/self/clear_refs").write_text("5", "utf-8")
    return peak_memory()


def resident_memory(process):
    """Resident size of a process by its id; 0 if it has ended."""
    try:
        return _of("VmRSS:", process)
    except (FileNotFoundError, ProcessLookupError, ValueError):  # a zombie has no line of it
        return 0


def timed(work, what="VmRSS:"):
    """The result of a call, its seconds, and the gigabytes that it added at its peak.

    Args:
        work: Function without arguments.
        what: Name of the memory in /proc/self/status: all, or `RssAnon:` without mapped files.
    """
    before, peak, done = _of(what), 0, threading.Event()

    def watch():
        nonlocal peak
        while not done.wait(0.01):
            peak = max(peak, _of(what))

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    try:
        result = work()
        seconds = time.perf_counter() - start
    finally:
        done.set()
        watcher.join()
    return result, seconds, max(peak - before, 0) / 1e9


def _of(what, process="self"):
    status = pathlib.Path(f"/proc/{process}/status").read_text("utf-8").split()
    return 1024 * int(status[status.index(what) + 1])
