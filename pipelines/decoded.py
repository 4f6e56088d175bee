"""Decoded images in memory, so that a training decodes each of them once."""

import weakref

import numpy as np
import tensorflow as tf


class DecodedImages:
    """Makes rows images as a `Reader` does; keeps as many as `limit` bytes hold, by "number"."""

    def __init__(self, reader, limit):
        self._reader, self._left, self._images = reader, limit, {}

    def image(self, row, draws):
        """The image of a row, by its part of the draws of a batch."""
        number, channels = row["number"], self._reader.image_size[2]
        # TensorFlow never forgets a NumPy function: it must not hold the images.
        mine = weakref.proxy(self)
        kept = tf.numpy_function(lambda *place: mine._get(*place), [number, channels], tf.uint8)

        def read():
            pixels = self._reader.before_crop(row, trained=True)
            return tf.numpy_function(lambda *found: mine._keep(*found), [number, pixels], tf.uint8)

        pixels = tf.cond(tf.size(kept) > 0, lambda: kept, read)
        return self._reader.part(tf.ensure_shape(pixels, (None, None, channels)), draws)

    def _get(self, number, channels):
        return self._images.get(int(number), np.zeros((0, 0, channels), np.uint8))

    def _keep(self, number, image):
        if self._left >= image.nbytes and int(number) not in self._images:
            self._left -= image.nbytes
            self._images[int(number)] = image.copy()
        return image
