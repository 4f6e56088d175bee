"""Keras callbacks: crash-safe checkpoints, a stop on divergence, logs of scores and losses."""

import pathlib
import time

import keras
import numpy as np

from tfdml.checks import check
from tfdml.evaluation import recall_at_k
from tfdml.evaluation.inputs import class_ids, neighbour_counts
from tfdml.files import replacing, shortened
from tfdml.models.pair_warnings import WarnWithoutPairs
from tfdml.quiet import progress


class Checkpoint(keras.callbacks.Callback):
    """Saves the whole model, optimizer included, after every epoch.

    The file, whose folder is made, is replaced atomically: a crash leaves the old or the new file,
    never a partial one.
    Differs from `keras.callbacks.ModelCheckpoint`, which writes in place.

    Args:
        path: Path of the file, ending in `.keras`.
        whole: Model to save, of which a part is trained; the trained one if None.
        seconds: Least time between two saves, but for the last.

    Raises:
        ValueError: If it does not end in `.keras`.
    """

    def __init__(self, path, whole=None, seconds=0):
        super().__init__()
        self.path, self.whole, self.seconds = pathlib.Path(path), whole, seconds
        check(self.path.suffix == ".keras", "`path` must end in .keras", path=str(path))

    def on_train_begin(self, logs=None):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._saved, self._is_saved = time.perf_counter(), True

    def on_epoch_end(self, epoch, logs=None):
        self._is_saved = False
        if time.perf_counter() - self._saved >= self.seconds:
            self._save()

    def on_train_end(self, logs=None):
        if not self._is_saved:
            self._save()

    def _save(self):
        unfinished = self.path.with_name(shortened(self.path.stem, ".unfinished.keras"))
        _updates(self.model)  # of which the variables of the whole have heard then
        with replacing(self.path, unfinished):
            (self.whole or self.model).save(unfinished)
        self._saved, self._is_saved = time.perf_counter(), True


class WithoutWaiting(keras.callbacks.CallbackList):
    """Calls callbacks with logs as tensors; Keras waits for them, while a GPU has nothing to do."""

    def __init__(self, callbacks, **options):
        super().__init__([*callbacks, WarnWithoutPairs()], add_history=True, **options)

    def on_train_batch_end(self, batch, logs=None):
        for callback in self.callbacks:
            callback.on_train_batch_end(batch, logs)


def _updates(model):
    """The number of updates of a model so far; waits for the last step."""
    if hasattr(model, "jax_state_sync"):
        model.jax_state_sync()  # within an epoch JAX has variables of its own
    return int(model.optimizer.iterations)


class StopOnNaN(keras.callbacks.Callback):
    """Raises a FloatingPointError with the step and the cause when training has diverged.

    It checks the loss after every tenth step, as it waits for it, and the weights after every
    epoch; put it before callbacks that save or score the model. Differs from
    `keras.callbacks.TerminateOnNaN`, which gives no cause and lets `fit` go on to evaluate and save
    the broken model.
    """

    def on_train_begin(self, logs=None):
        # Resumed training had a finite loss before, or it would have stopped.
        self._was_finite = _updates(self.model) > 0

    def on_train_batch_end(self, batch, logs):
        if batch % 10:  # the mean of an epoch stays NaN
            return
        if np.isfinite(float(logs["loss"])):
            self._was_finite = True
            return
        cause = "the loss was never finite: check the images and the options of the loss"
        num_classes = getattr(self.model.loss, "num_classes", None)
        if num_classes is not None:
            cause += f", and that labels are from 0 to {num_classes - 1}, as its num_classes says"
        self._stop(f"loss {float(logs['loss'])}", None if self._was_finite else cause)

    def on_epoch_end(self, epoch, logs=None):
        for variable in self.model.trainable_variables:
            if not np.isfinite(keras.ops.convert_to_numpy(keras.ops.sum(variable))):
                self._stop(f"{variable.path} not finite")

    def _stop(self, what, cause=None):
        step = _updates(self.model)
        if cause is None:
            rate = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))
            cause = (
                f"the loss diverged: lower the learning rate (now {rate:g}), or check that all "
                "pixels are finite"
            )
        raise FloatingPointError(f"{what} at step {step}; {cause}")


class StopAt(keras.callbacks.Callback):
    """Stops training at a step, even within an epoch.

    Args:
        step: Total number of updates, including those of earlier calls of `fit`.
    """

    def __init__(self, step):
        super().__init__()
        self.step = step

    def on_train_begin(self, logs=None):
        self._left = self.step - _updates(self.model)

    def on_train_batch_end(self, batch, logs=None):
        self._left -= self.model.steps_per_execution  # at most
        if self._left <= 0:
            self._left = self.step - _updates(self.model)
            self.model.stop_training |= self._left <= 0


class ProgressBar(keras.callbacks.Callback):
    """Shows one bar over the whole training, with the mean loss of the current epoch.

    It also shows the last scores in the logs whose names begin with `val_`: put it behind the
    callbacks that add them. Where there is no terminal, it prints the loss and the speed at every
    tenth of the training.

    Args:
        steps: Total number of updates.
    """

    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def on_train_begin(self, logs=None):
        self._step = self._printed = _updates(self.model)
        self._bar = progress("Training", total=self.steps, unit="step", done=self._step)
        self._scores, self._shown, self._began = {}, 0.0, time.perf_counter()

    def on_train_batch_end(self, batch, logs):
        if self._bar.disable:
            self._print(logs)
        elif time.perf_counter() - self._shown > 0.2:
            self._show(logs)

    def _print(self, logs):
        last, self._step = self._step, _updates(self.model)
        if 10 * self._step // self.steps > 10 * last // self.steps:
            speed = (self._step - self._printed) / (time.perf_counter() - self._began)
            done = f"step {self._step:,} of {self.steps:,}"
            print(f"{done}   loss {float(logs['loss']):.4f}   {speed:.1f} steps/s", flush=True)
            self._printed, self._began = self._step, time.perf_counter()

    def _show(self, logs):
        shown = {"loss": f"{float(logs['loss']):.4f}", **self._scores}
        self._bar.set_postfix(shown, refresh=False)
        self._bar.update(_updates(self.model) - self._bar.n)
        self._shown = time.perf_counter()

    def on_epoch_end(self, epoch, logs):
        if not self._bar.disable:
            self._show(logs)
        self._scores = {name: f"{x:.4f}" for name, x in logs.items() if name.startswith("val_")}

    def on_train_end(self, logs=None):
        self._bar.close()


def _embed(model, images, steps=None):
    """(n, dim) embeddings by an `EmbeddingModel`, or by another model, of its first batches."""
    if hasattr(model, "embed"):
        return model.embed(images)
    embeddings = model.predict(images, verbose=0, steps=steps)
    shape = keras.tree.map_structure(np.shape, embeddings)
    is_one = isinstance(embeddings, np.ndarray) and embeddings.ndim == 2
    check(is_one, "the model must have one output, (batch, dim) embeddings", shape=shape)
    return embeddings


class RetrievalScores(keras.callbacks.Callback):
    """Adds Recall@K of held-out images to the logs after every epoch.

    Args:
        images: Inputs of `EmbeddingModel.embed`, or of `predict` of another model of one output.
        labels: (n,) integers, the class ids of the images.
        k: Number of neighbours, or several.

    Raises:
        TypeError: If `labels` are not integers.
        ValueError: If `labels` are several a row or `k` is out of range; as training begins, if the
            model has not one output of (batch, dim).
    """

    def __init__(self, images, labels, k=(1,)):
        super().__init__()
        check(
            np.ndim(labels) == 1,
            "`labels` must be (n,) class ids: images of several labels are not scored",
            **{"labels.shape": np.shape(labels)},
        )
        self.images, self.labels = images, class_ids(labels)
        self.k = neighbour_counts(k, len(self.labels) - 1)

    def on_train_begin(self, logs=None):
        if not hasattr(self.model, "embed"):
            _embed(self.model, self.images, steps=1)

    def on_epoch_end(self, epoch, logs):
        scores = recall_at_k(_embed(self.model, self.images), self.labels, k=self.k)
        logs.update({f"val_recall@{k}": score for k, score in scores.items()})


class LossLogs(keras.callbacks.Callback):
    """Logs what the loss learned, `MetricLoss.logs`, after every epoch.

    An array, such as the targets of density, is logged by its mean, lowest and highest value. Put
    it before callbacks that write the logs.
    """

    def on_train_begin(self, logs=None):
        self._learned()  # some log what changed since the last call

    def _learned(self):
        return self.model.loss.logs() if hasattr(self.model.loss, "logs") else {}

    def on_epoch_end(self, epoch, logs):
        for name, value in self._learned().items():
            if np.ndim(value) == 0:
                logs[name] = float(value)
                continue
            kinds = {"mean": np.mean(value), "lowest": np.min(value), "highest": np.max(value)}
            logs.update({f"{name}_{kind}": float(number) for kind, number in kinds.items()})


class EmbeddingsOfEpoch(keras.callbacks.Callback):
    """Passes the embeddings of images to a function at the start of every epoch.

    Shows a progress bar if that takes more than two seconds.

    Args:
        images: Batches of images, such as a `tf.data.Dataset`.
        receive: Function of the step and the (n, dim) NumPy embeddings. The step is that of the
            optimizer at the start of `fit`, and the batches since.
    """

    def __init__(self, images, receive):
        super().__init__()
        self.images, self.receive = images, receive

    def on_train_begin(self, logs=None):
        # An optimizer may skip steps, or make one of several batches.
        self._step, self._batches = _updates(self.model), 0

    def on_train_batch_end(self, batch, logs=None):
        self._batches = batch + 1

    def on_epoch_end(self, epoch, logs=None):
        self._step += self._batches

    def on_epoch_begin(self, epoch, logs=None):
        batches = progress("Embedding the training images", self.images, unit="batch")
        arrays = (keras.tree.map_structure(np.asarray, images) for images in batches)
        embeddings = np.concatenate([self.model.predict_on_batch(images) for images in arrays])
        self.receive(self._step, embeddings)
