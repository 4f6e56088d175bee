"""TensorFlow without the lines that it prints at its start."""

import os
import sys


def import_tensorflow(start=None):
    """Imports TensorFlow without the lines that its libraries print at their start.

    They go to the file descriptor, before TensorFlow reads `TF_CPP_MIN_LOG_LEVEL`.

    Args:
        start: Function that starts the devices, where they are not started by the first operation.

    Returns:
        What `start` returns; None without it.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if "tensorflow" in sys.modules:
        return None if start is None else start()
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        import tensorflow as tf

        started = None if start is None else start()
        tf.transpose(tf.zeros([1, 1], tf.uint8))  # starts the devices and oneDNN
        return started
    finally:
        os.dup2(kept, 2)
        os.close(kept)
