"""Datasets that use all cores."""

import os

import tensorflow as tf


def on_all_cores(dataset):
    """The dataset, whose parallel steps take all cores from the start, without autotuning.

    The thread of TensorFlow (2.21) that autotunes may miss that its iterator is deleted. The
    program then waits for it up to a minute: after training, or before it ends.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    options.autotune.initial_parallelism = os.cpu_count()
    return dataset.with_options(options)
