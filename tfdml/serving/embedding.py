"""Embeddings of many images by an exported model, in batches that fit the memory."""

import warnings

import numpy as np
import tensorflow as tf

_BYTES = 2**30  # memory for the activations of a batch
_CHANNELS = 64  # activations per pixel, as in the first layers of large networks
_MOST = 256


def fitting_batch_size(image_size, outputs=0):
    """A batch size whose embedding needs about 1 GiB, at most 256.

    Args:
        image_size: (height, width, channels).
        outputs: Numbers per embedding, of all levels.

    Example:
        >>> fitting_batch_size((28, 28, 1), 128), fitting_batch_size((224, 224, 3), 128)
        (256, 83)
    """
    height, width, _ = image_size
    numbers = height * width * _CHANNELS + outputs
    return max(1, min(_MOST, _BYTES // (4 * numbers)))


class InPieces:
    """Calls a function on pieces of a batch; halves the pieces whenever memory runs out.

    Args:
        function: From (n, ...) to (n, ...) arrays, row by row.
        batch_size: Most rows of a piece; the attribute `batch_size` is the current value.

    Call:
        rows: (n, ...) of any n >= 1.
        Returns the function's results for all rows, as one array.

    Raises:
        tf.errors.ResourceExhaustedError: If memory does not suffice for a single row.
    """

    def __init__(self, function, batch_size):
        self.function = function
        self.batch_size = batch_size

    def __call__(self, rows):
        done, first = [], 0
        while first < len(rows):
            piece = rows[first : first + self.batch_size]
            try:
                done.append(np.asarray(self.function(piece)))
            except tf.errors.ResourceExhaustedError:
                if len(piece) == 1:
                    raise
                self.batch_size = len(piece) // 2
                cause = f"memory does not suffice for {len(piece)} images at once"
                warnings.warn(f"{cause}: continuing with {self.batch_size}", stacklevel=2)
            else:
                first += len(piece)
        return np.concatenate(done)
