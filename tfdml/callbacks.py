"""Keras callbacks: checkpoints that survive a crash, a stop that names its cause, scores."""

import os
import pathlib

import keras
import numpy as np

from tfdml.checks import check
from tfdml.evaluation import recall_at_k


class Checkpoint(keras.callbacks.Callback):
    """Saves the whole model, optimizer included, after every epoch.

    The file is replaced in one step, so that a crash leaves the last one or the new one, never
    half of one. Differs from `keras.callbacks.ModelCheckpoint`, which writes in place.

    Args:
        path: Path of the file, ending in `.keras`.

    Raises:
        ValueError: If it ends otherwise.
    """

    def __init__(self, path):
        super().__init__()
        self.path = pathlib.Path(path)
        check(self.path.suffix == ".keras", "`path` must end in .keras", path=str(path))

    def on_epoch_end(self, epoch, logs=None):
        unfinished = self.path.with_name(f"{self.path.stem}.unfinished.keras")
        try:
            self.model.save(unfinished)
            os.replace(unfinished, self.path)
        finally:
            unfinished.unlink(missing_ok=True)


class StopOnNaN(keras.callbacks.Callback):
    """Raises a FloatingPointError with the step and the cause when the loss is not finite.

    Differs from `keras.callbacks.TerminateOnNaN`, which stops without a cause and goes on to
    evaluate and save the broken model.
    """

    def on_train_begin(self, logs=None):
        self._last = None

    def on_train_batch_end(self, batch, logs=None):
        loss = logs["loss"]
        if np.isfinite(loss):
            self._last = loss
            return
        step = int(self.model.optimizer.iterations)
        broken = [v.path for v in self.model.trainable_variables if not np.isfinite(v).all()]
        cause = (
            f"{len(broken)} weights are not finite, among them {broken[0]}: the update overflowed"
            if broken
            else "the weights are finite: the images or the loss are not"
        )
        rate = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))
        raise FloatingPointError(
            f"the loss became {loss} at step {step} (mean before: {self._last}); {cause}. "
            f"Lower the learning rate (now {rate:g}) or check the options of the loss."
        )


class RetrievalScores(keras.callbacks.Callback):
    """Adds Recall@K of held-out images to the logs after every epoch.

    Args:
        images: What `EmbeddingModel.embed` takes.
        labels: (n,) integers, the class ids of the images.
        k: Numbers of neighbours.
    """

    def __init__(self, images, labels, k=(1,)):
        super().__init__()
        self.images = images
        self.labels = labels
        self.k = tuple(k)

    def on_epoch_end(self, epoch, logs=None):
        scores = recall_at_k(self.model.embed(self.images), self.labels, k=self.k)
        logs.update({f"val_recall@{k}": score for k, score in scores.items()})
