"""Warnings of batches without two images of one class, or of two."""

import warnings

import keras
import numpy as np
from keras import ops

_WIDEST = "int32" if keras.backend.backend() == "jax" else "int64"


class WarnWithoutPairs(keras.callbacks.Callback):
    """Warns once in training, and once in evaluation, of batches without positives or negatives."""

    def __init__(self):
        super().__init__()
        self._warned = set()

    def on_train_begin(self, logs=None):
        self._begin("training")

    def on_train_batch_end(self, batch, logs=None):
        if batch == 9:
            self._warn("training")

    def on_epoch_end(self, epoch, logs=None):
        self._warn("training")

    def on_test_begin(self, logs=None):
        self._begin("evaluation")

    def on_test_end(self, logs=None):
        self._warn("evaluation")

    def _begin(self, what):
        getattr(self.model._met, what).assign(np.zeros(3))

    def _warn(self, what):
        if hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()  # within an epoch JAX has variables of its own
        counts = getattr(self.model._met, what) + 0  # a tensor on every backend
        batches, *lacking = map(int, ops.unstack(counts))
        if what in self._warned or not any(lacking):
            return
        self._warned.add(what)
        kinds = "no two images of one class", "no images of two classes"
        pairs = zip(lacking, kinds, strict=True)
        had = " and ".join(f"{count} had {kind}" for count, kind in pairs if count)
        warnings.warn(
            f"of {batches} batches of the {what} {had}, so that a loss over pairs lacks terms. Use "
            "class-balanced batches, such as those of pipelines.balanced_batches, or shuffle",
            stacklevel=2,
        )


def counted_batches():
    """A variable of the numbers of batches, of those without positives and without negatives."""
    options = {"trainable": False, "dtype": "int32", "aggregation": "only_first_replica"}
    return keras.Variable(np.zeros(3), **options)


def lacks_pairs(labels):
    """(2,) bools: whether no two rows have a class id, or label, in common; and whether all do."""
    if len(labels.shape) == 2 and labels.shape[1] != 1:
        sets = ops.cast(labels, "float32")
        common = ops.cast(ops.matmul(sets, ops.transpose(sets)) > 0, "int32")
        pairs, rows = ops.sum(common) - ops.trace(common), ops.shape(labels)[0]
        return ops.stack([pairs == 0, pairs == rows * (rows - 1)])
    ordered = ops.sort(ops.cast(ops.reshape(labels, (-1,)), _WIDEST))
    return ops.stack([~ops.any(ordered[1:] == ordered[:-1]), ordered[0] == ordered[-1]])
