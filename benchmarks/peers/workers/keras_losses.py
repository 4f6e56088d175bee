"""An objective of Keras' core: its value, its gradients and their time, on rows of unit length."""

import numpy as np

from benchmarks.loss_speed import gradient_step
from benchmarks.peers.workers.tfdml_losses import traced, versions
from tfdml.quiet import import_tensorflow


class OnUnitRows:
    """A loss of Keras as `gradient_step` takes it."""

    layers = ()

    def __init__(self, loss):
        self.loss = loss

    def __call__(self, labels, embeddings, training):
        import keras

        return self.loss(labels, keras.ops.normalize(embeddings, axis=1))


def prepare(settings, folder):
    import_tensorflow()
    import keras
    import tensorflow as tf

    with np.load(folder / settings["inputs"]) as arrays:
        rows, labels = tf.constant(arrays["rows"], settings["dtype"]), tf.constant(arrays["labels"])
    built = getattr(keras.losses, settings["name"])
    loss = OnUnitRows(built(**settings["options"], dtype=settings["dtype"]))
    step, _ = gradient_step(loss, rows.shape)
    work = traced(step, labels, rows)
    work.versions = versions()
    return work
