"""Datasets that use all cores."""

import os

import tensorflow as tf


def on_all_cores(dataset):
    """Runs the parallel steps of a dataset on all cores, without autotuning.

    The autotuning thread of TensorFlow 2.21 may miss that its iterator is being deleted. The
    deletion then blocks for up to a minute, such as at the end of a program.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    options.autotune.initial_parallelism = os.cpu_count()
    return dataset.with_options(options)
