"""Libraries without the lines that they print from C++."""

import contextlib
import ctypes
import os
import sys

from tfdml.checks import check_keras


def import_tensorflow(start=None):
    """Imports TensorFlow without the lines that its libraries print at their start.

    They go to the file descriptor, before TensorFlow reads `TF_CPP_MIN_LOG_LEVEL`. Later lines are
    those of fatal errors, unless that is set: what else fails in C++ is raised as an exception.

    Args:
        start: Function that starts the devices, where they are not started by the first operation.

    Returns:
        What `start` returns; None without it.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if "tensorflow" in sys.modules:
        return None if start is None else start()
    with silent():
        try:
            import tensorflow as tf
        except (AssertionError, AttributeError):  # it reads the settings of Keras
            check_keras()
            raise

        started = None if start is None else start()
        tf.transpose(tf.zeros([1, 1], tf.uint8))  # starts the devices and oneDNN
    return started


@contextlib.contextmanager
def bars_in_a_terminal():
    """Within the block Keras draws progress bars, such as of downloads, in a terminal only."""
    import keras

    drawn = keras.utils.is_interactive_logging_enabled()
    if not sys.stdout.isatty():
        keras.utils.disable_interactive_logging()
    try:
        yield
    finally:
        if drawn:
            keras.utils.enable_interactive_logging()


@contextlib.contextmanager
def silent(*descriptors):
    """Drops what is written to file descriptors within the block; 2, standard error, if not given.

    With 1, standard output, the buffer of C is emptied, so that lines of C++ do not appear later.
    """
    descriptors = descriptors or (2,)
    flush()
    kept = {number: os.dup(number) for number in descriptors}
    try:
        with open(os.devnull, "w") as nowhere:
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
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "posix":
        ctypes.CDLL(None).fflush(None)
