"""Decoded images in memory, so that a training decodes each of them once."""

import dataclasses
import weakref

import numpy as np
import tensorflow as tf

from pipelines.loading import read
from pipelines.transforms import warp


class DecodedImages:
    """Makes rows images as a `Reader` does; keeps as many as `limit` bytes hold, by "number"."""

    def __init__(self, reader, limit):
        self._reader, self._left, self._images = reader, limit, {}
        self._after = dataclasses.replace(
            reader, preprocessing=reader.preprocessing.after_warp(reader.preprocessing)
        )

    def image(self, row, draws):
        """The image of a row, by its part of the draws of a batch."""
        number, channels = row["number"], self._reader.image_size[2]
        # TensorFlow never forgets a NumPy function: it must not hold the images.
        mine = weakref.proxy(self)
        kept = tf.numpy_function(lambda *place: mine._get(*place), [number, channels], tf.uint8)
        pixels = tf.cond(
            tf.size(kept) > 0,
            lambda: kept,
            lambda: tf.numpy_function(
                lambda *found: mine._keep(*found), [number, self._decoded(row)], tf.uint8
            ),
        )
        return self._after.image({"pixels": tf.ensure_shape(pixels, (None, None, channels))}, draws)

    def _decoded(self, row):
        size, preprocessing = self._reader.image_size, self._reader.preprocessing
        image = read(row, size[2])
        warps = preprocessing.takes_crops and not self._reader.augmentation.crops
        if warps or preprocessing.trim_white:
            return warp(image, preprocessing.size_of_warp(size), preprocessing)
        return image

    def _get(self, number, channels):
        return self._images.get(int(number), np.zeros((0, 0, channels), np.uint8))

    def _keep(self, number, image):
        if self._left >= image.nbytes and int(number) not in self._images:
            self._left -= image.nbytes
            self._images[int(number)] = image.copy()
        return image
