"""Batches of many images, in pieces that fit the memory."""

import warnings

import numpy as np
import tensorflow as tf

_BYTES = 2**30  # memory for the activations of a batch
_CHANNELS = 64  # activations per pixel, as in the first layers of large networks
_MOST = 256


def fitting_batch_size(image_size, outputs=0):
    """A batch size, at most 256, whose embedding to so many outputs needs about 1 GiB."""
    height, width, _ = image_size
    numbers = height * width * _CHANNELS + outputs
    return max(1, min(_MOST, _BYTES // (4 * numbers)))


class InPieces:
    """Calls a function on pieces of (n, ...) arrays; halves them whenever memory runs out."""

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
