"""Weights as stored in a version: float32, scaled float16 or scaled int8."""

import keras
import numpy as np
import tensorflow as tf

_LARGEST = 127  # of int8, on either side of 0


class StoredWeights:
    """The weights of layers, stored at some precision and restored in the graph.

    Each channel of a kernel is stored as a scale and numbers up to 127, or up to 1 for `float16`,
    which would lose channels of small weights. Biases and statistics are few, stored unchanged.
    """

    def __init__(self, layers, precision):
        self.stored = []  # the `tf.Variable`s that are written
        self._rounded = []  # (a Keras variable, its small numbers, their scales)
        for variable in {id(v): v for layer in layers for v in layer.variables}.values():
            numbers = np.asarray(variable)
            if precision == "float32" or numbers.ndim < 2 or numbers.dtype != np.float32:
                self.stored.append(variable.value)
            else:
                parts = [tf.Variable(p, trainable=False) for p in scaled(numbers, precision)]
                self.stored += parts
                self._rounded.append((variable, *parts))

    def in_place(self):
        """A context in which the layers use the stored weights."""
        restored = [(v, tf.cast(small, tf.float32) * scales) for v, small, scales in self._rounded]
        return keras.StatelessScope(restored)


def scaled(numbers, precision):
    """A kernel as small numbers of a type, and the float32 scales to multiply them with.

    The channels are along the last axis with more than one entry: the outputs of dense layers and
    convolutions, the inputs of depthwise convolutions.
    """
    numbers = np.asarray(numbers, np.float32)
    longer = [axis for axis, length in enumerate(numbers.shape) if length > 1]
    others = tuple(axis for axis in range(numbers.ndim) if axis not in longer[-1:])
    largest = np.abs(numbers).max(axis=others, keepdims=True)
    scales = np.where(largest > 0, largest, 1.0).astype(np.float32)
    if precision == "float16":
        return (numbers / scales).astype(np.float16), scales
    scales = scales / _LARGEST
    return np.rint(numbers / scales).astype(np.int8), scales
