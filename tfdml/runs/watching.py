"""What watches, logs and saves a training, and what a stop of it says."""

import contextlib
import math
import re
import signal
import sys
import threading

import keras
import tensorflow as tf

from pipelines.loading import cause_of
from tfdml import callbacks
from tfdml.files import read_text, write_text
from tfdml.models import save_adapters
from tfdml.runs.folders import ADAPTERS, CHECKPOINT
from tfdml.runs.run_batches import images_to_score


def watching_callbacks(run):
    """The callbacks of a `Run` that is kept, in this order."""
    recipe, images, start, logs = run.recipe, run.seen, run.step, run.folder / "logs"
    if recipe.validation_share:
        batches = images_to_score(images.test, images.dataset)
        yield callbacks.RetrievalScores(batches, images.test.labels)
    yield callbacks.LossLogs()
    yield keras.callbacks.TensorBoard(str(logs))
    log = logs / "epochs.csv"
    if start:
        _drop_rows(log, math.ceil(start / recipe.checkpoint_every))
    yield keras.callbacks.CSVLogger(str(log), append=start > 0)
    seconds = 60 if recipe.tune == "head" else 0  # of which most would go into saving the backbone
    yield callbacks.Checkpoint(run.folder / CHECKPOINT, run.model, seconds)
    if recipe.tune == "lora":
        kept = run.model.embedder, run.folder / ADAPTERS
        yield keras.callbacks.LambdaCallback(on_train_end=lambda logs: save_adapters(*kept))
    yield callbacks.ProgressBar(recipe.steps)


def _drop_rows(log, epoch):
    """Drops the rows from an epoch on, logged before a crash, for the epochs are trained again."""
    lines = read_text(log).splitlines() if log.is_file() else []
    lines = [line for line in lines if line]  # on Windows, Keras adds empty ones
    kept = lines[:1] + [line for line in lines[1:] if int(line.partition(",")[0]) < epoch]
    if kept != lines:
        write_text(log, "\n".join(kept) + "\n")


@contextlib.contextmanager
def resumable(go_on, splits):
    """States `go_on`, how to resume, after Ctrl-C, an unreadable image, or a full disk."""
    with _interrupts_noted() as interrupts:
        try:
            yield
        except (Exception, KeyboardInterrupt) as error:
            if interrupts or isinstance(error, KeyboardInterrupt):
                print(f"\nStopped. {go_on}", file=sys.stderr)
                raise SystemExit(130) from None
            is_tensorflow = isinstance(error, tf.errors.OpError)
            memory = isinstance(error, RuntimeError) or is_tensorflow
            memory = memory and re.search("OOM|RESOURCE_EXHAUSTED|out of memory", str(error))
            if is_tensorflow or memory or isinstance(error, OSError):
                cause = cause_of(error, *splits) if is_tensorflow else str(error).partition("\n")[0]
                if memory:
                    cause += ". A new run with a smaller batch or --micro_batch needs less memory"
                raise OSError(f"{cause}. {go_on}") from error
            raise


@contextlib.contextmanager
def _interrupts_noted():
    """A list that holds something after Ctrl-C: TensorFlow may lose the exception, or wrap it."""
    interrupts = []
    handled = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not handled or threading.current_thread() is not threading.main_thread():
        yield interrupts
        return

    def note(*arguments):
        interrupts.append(arguments)
        signal.default_int_handler(*arguments)

    signal.signal(signal.SIGINT, note)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
