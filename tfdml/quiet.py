"""What a process prints: no lines of C++ libraries, and nothing that could end it."""

import contextlib
import ctypes
import io
import os
import select
import sys
import warnings

from tqdm import tqdm

from tfdml.checks import keras_setting

_INSIDE = ("tfdml", "pipelines", "tensorflow")  # packages between a call and its warnings


def keep_printing():
    """Lets no line that this process prints end it; the first call of every program.

    Characters that an encoding lacks are escaped, and what cannot be written is dropped, as to a
    closed pipe or stream, whose file descriptor the next file that is opened would take.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for name in ("stdout", "stderr"):
        setattr(sys, name, _lasting(getattr(sys, name)))


def _lasting(stream):
    if stream is None or getattr(stream, "closed", False):
        return open(os.devnull, "w", encoding="utf-8", errors="ignore")
    if not isinstance(stream, io.TextIOWrapper):  # of a notebook or a test
        return stream
    with contextlib.suppress(OSError):
        stream.reconfigure(errors="backslashreplace")
    raw = getattr(stream.buffer, "raw", stream.buffer)
    if type(stream) is not io.TextIOWrapper or type(raw) is not io.FileIO:
        return stream
    raw = _Lasting(raw.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        raw if stream.write_through else io.BufferedWriter(raw),
        stream.encoding,
        "backslashreplace",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


class _Lasting(io.FileIO):
    """A file whose writes do not fail."""

    def write(self, content):
        try:
            while (written := super().write(content)) is None:  # a full pipe that does not block
                select.select([], [self], [])
            return written
        except OSError:  # no reader, a full disk, a terminal that is gone
            return len(content)


def import_tensorflow(start=None):
    """Imports TensorFlow without the lines that its libraries print at their start.

    They go to the file descriptor, before TensorFlow reads `TF_CPP_MIN_LOG_LEVEL`. Returns what
    `start` returns, a function that starts other devices than the first operation would.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if "tensorflow" in sys.modules:
        return None if start is None else start()
    with silent():
        import tensorflow as tf

        if keras_setting("backend")[0] != "tensorflow":  # which takes the memory of the GPU
            tf.config.set_visible_devices([], "GPU")
        started = None if start is None else start()
        tf.transpose(tf.zeros([1, 1], tf.uint8))  # starts the devices and oneDNN
    return started


@contextlib.contextmanager
def silent(*descriptors):
    """Drops what is written to file descriptors within the block, of standard error if none."""
    descriptors = descriptors or (2,)
    flush()
    kept = {number: os.dup(number) for number in descriptors}
    try:
        with open(os.devnull, "wb") as nowhere:
            for number in descriptors:
                os.dup2(nowhere.fileno(), number)
        yield
    finally:
        flush()
        for number, copy in kept.items():
            os.dup2(copy, number)
            os.close(copy)


def flush():
    """Empties the buffers of the standard output and error, of Python and of C."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with contextlib.suppress(OSError, ValueError):  # of a closed stream
            stream.flush()
    if os.name == "posix":
        ctypes.CDLL(None).fflush(None)


def progress(what, items=None, *, total=None, unit="image", shown=True, done=0) -> tqdm:
    """`tqdm` over items, or moved by `update`, in a terminal if it takes more than two seconds."""
    disable = None if shown else True  # None: unless in a terminal
    return tqdm(items, what, total, unit=unit, delay=2, disable=disable, initial=done)


def warn(warning):
    """Warns of the line that called this library, also from a function of `tf.data`."""
    level = 1
    while sys._getframe(level).f_globals["__name__"].partition(".")[0] in _INSIDE:
        level += 1
    warnings.warn(warning, stacklevel=level + 1)
