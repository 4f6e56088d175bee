"""Memory of this process, in bytes, from Linux."""

import ctypes
import pathlib


def peak_memory():
    """Largest resident size since the start, or since `forget_peak`."""
    return _of("VmHWM:")


def forget_peak():
    """Gives freed memory back, and makes what is in use the peak; returns it."""
    ctypes.CDLL(None).malloc_trim(0)  # else arrays that were freed would count
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    return peak_memory()


def resident_memory(process):
    """Resident size of a process by its id; 0 if it has ended."""
    try:
        return _of("VmRSS:", process)
    except (FileNotFoundError, ProcessLookupError, ValueError):  # a zombie has no line of it
        return 0


def _of(what, process="self"):
    status = pathlib.Path(f"/proc/{process}/status").read_text().split()
    return 1024 * int(status[status.index(what) + 1])
