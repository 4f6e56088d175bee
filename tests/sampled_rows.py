"""Labels for samplers to draw from, and the rows that they choose."""

import itertools

import numpy as np
import tensorflow as tf

from pipelines import Split

EAGER = 8  # batches that take less time than a graph


def labels_of(counts):
    """Labels of classes of so many images, shuffled."""
    return np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))


def nested(counts):
    """Labels and super-labels, shuffled, of super-classes whose classes have so many images."""
    labels = labels_of([size for super_class in counts for size in super_class])
    super_of = np.repeat(np.arange(len(counts)), [len(super_class) for super_class in counts])
    return labels - 3, super_of[labels] + 2**40


def split_of(labels, super_labels=None):
    """A split whose inputs are the numbers of its rows."""
    return Split(inputs=np.arange(len(labels)), labels=labels, super_labels=super_labels)


@tf.autograph.experimental.do_not_convert
def rows_of(batches, sampler, split, seed=0, start=0):
    """The rows of so many batches of a split, or of labels; eagerly, of few, as a graph of many."""
    split = split if isinstance(split, Split) else split_of(split)
    if batches <= EAGER:
        numbers = (tf.constant(step, tf.int64) for step in range(start, start + batches))
        return [sampler.indices(split, seed, step).numpy() for step in numbers]
    steps = tf.data.Dataset.counter(tf.constant(start, tf.int64))
    chosen = steps.map(lambda step: sampler.indices(split, seed, step), tf.data.AUTOTUNE)
    return list(itertools.islice(chosen.as_numpy_iterator(), batches))
