"""TensorFlow without the lines that it prints at its start."""

import os
import sys


def import_tensorflow():
    """Imports TensorFlow without the lines that its libraries print at their start.

    They go to the file descriptor, before TensorFlow reads `TF_CPP_MIN_LOG_LEVEL`.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if "tensorflow" in sys.modules:
        return
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        import tensorflow as tf

        tf.transpose(tf.zeros([1, 1], tf.uint8))  # starts the devices and oneDNN
    finally:
        os.dup2(kept, 2)
        os.close(kept)
