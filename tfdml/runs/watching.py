"""What watches, logs and saves a training."""

import math
import sys

import keras

from tfdml import callbacks
from tfdml.files import read_text, write_text
from tfdml.layers import EmbeddingMemory
from tfdml.runs.folders import CHECKPOINT
from tfdml.runs.run_batches import images_to_score, sample_to_embed


def watching_callbacks(run):
    """The callbacks of a `Run` that is kept, in this order."""
    recipe, images, loss = run.recipe, run.images, run.model.loss
    interval, start, logs = recipe.checkpoint_every, run.step, run.folder / "logs"
    if recipe.validation_share:
        batches = images_to_score(images.test, images.dataset)
        yield callbacks.RetrievalScores(batches, images.test.labels)
    if loss.traits.compares_batches:
        size = next(layer.size for layer in loss.layers if isinstance(layer, EmbeddingMemory))
        sample = sample_to_embed(images.train, images.dataset)
        epochs = math.ceil(size / (recipe.batch_size * interval))
        yield callbacks.EmbeddingDrift(sample, epochs=epochs)
    yield callbacks.LossLogs(logs / "train")
    yield keras.callbacks.TensorBoard(str(logs))
    log = logs / "epochs.csv"
    if start:
        _drop_rows(log, math.ceil(start / interval))
    yield keras.callbacks.CSVLogger(str(log), append=start > 0)
    yield callbacks.Checkpoint(run.folder / CHECKPOINT)
    in_terminal = sys.stderr.isatty()  # where the bar is drawn
    yield (callbacks.ProgressBar if in_terminal else callbacks.ProgressLines)(recipe.steps)


def _drop_rows(log, epoch):
    """Drops the rows from an epoch on, logged before a crash, for the epochs are trained again."""
    lines = read_text(log).splitlines() if log.is_file() else []
    lines = [line for line in lines if line]  # on Windows, Keras adds empty ones
    kept = lines[:1] + [line for line in lines[1:] if int(line.partition(",")[0]) < epoch]
    if kept != lines:
        write_text(log, "\n".join(kept) + "\n")
