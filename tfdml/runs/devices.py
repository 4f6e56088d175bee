"""The devices that a run trains on: one, several of this machine, or those of several workers."""

import contextlib
import dataclasses
import functools
import hashlib
import os
import re
import signal
import sys
from typing import Any

from tfdml.checks import check
from tfdml.command_line import program_name
from tfdml.quiet import import_tensorflow
from tfdml.runs.cluster import read_config
from tfdml.runs.interrupts import at_most, in_main_thread
from tfdml.runs.meeting import Meeting

HELP = (
    "Devices to train on, each with an equal part of every batch: `all` for all GPUs of this "
    "machine, a number of GPUs, or `cpu:2` to try two devices on the processor. If not given, one "
    "device. The loss compares the images of all parts, so that losses and updates equal those of "
    "one device, with two exceptions: trained batch normalisation uses the statistics of each "
    "part, and dropout draws for each part. For several machines, start the same command on each, "
    "without --devices, with the variable TF_CONFIG that TensorFlow documents. A run may "
    "resume on other devices."
)
VARYING = ("groups", "whole_classes")
SECONDS_TO_CONNECT = 120  # for TensorFlow, once all workers are there


@dataclasses.dataclass(frozen=True)
class Devices:
    """What a run trains on, as read from `--devices` and TF_CONFIG.

    Attributes:
        text: `--devices`, or None.
        addresses: Of all workers, the chief's first; empty for a single process.
        index: Of this worker among them.
        meeting: `Meeting` of the workers, before they start; None for a single process.
        strategy: That of `tf.distribute`, once started; None for a single device.
    """

    text: str | None = None
    addresses: tuple = ()
    index: int = 0
    meeting: Meeting | None = None
    strategy: Any = None

    @property
    def is_chief(self):
        """Whether this process writes, scores and exports."""
        return self.index == 0

    @property
    def part(self):
        """(index, count) of the rows of a batch that this process reads."""
        return self.index, max(1, len(self.addresses))

    @property
    def replicas(self):
        return 1 if self.strategy is None else self.strategy.num_replicas_in_sync

    def named(self, text):
        """These, or those of `--devices`, which a worker does not take.

        Raises:
            ValueError: If the text is not understood, or given to a worker.
        """
        if text is None:
            return self
        expectation = "`--devices` must not be given with TF_CONFIG: each worker uses all its GPUs"
        check(not self.addresses, expectation, devices=text)
        known = re.fullmatch(r"all|(cpu:)?0*[1-9][0-9]{0,3}", text)
        expectation = "`devices` must be `all`, a number of GPUs, or cpu: and a number, as cpu:2"
        check(known, expectation, devices=text)
        return Devices(text)

    def started(self):
        """Starts TensorFlow on the devices; with several workers, waits for all of them.

        Returns:
            `Devices`, with a strategy unless it is a single device.

        Raises:
            ValueError: If there are fewer devices.
            OSError: If another worker was rejected or does not come.
        """
        if self.meeting is not None:
            self.meeting.agree()
            with open(os.dup(2), "wb") as errors:  # as the import drops what is printed
                start = functools.partial(_workers, self.meeting, errors)
                return dataclasses.replace(self, strategy=import_tensorflow(start))
        if self.text is None:
            return self
        start = functools.partial(_of_this_machine, self.text)
        return dataclasses.replace(self, strategy=import_tensorflow(start))

    @contextlib.contextmanager
    def rejected_together(self):
        """Within it, the exit of this worker before it has started ends the others."""
        try:
            yield
        except SystemExit as stop:
            if self.meeting is not None and stop.code in (1, 2):
                self.meeting.reject()
            raise

    def check(self, recipe):
        """Raises a ValueError for a recipe that these devices cannot train."""
        if self.replicas == 1:
            return
        recipe.check(
            recipe.sampler not in VARYING,
            f"several devices divide batches evenly, and those of `sampler` {recipe.sampler} vary "
            "in size",
        )
        recipe.check(
            recipe.precision != "mixed_float16",
            "`precision` mixed_float16 is for one device, as some devices may skip a step that "
            "others make. Use mixed_bfloat16",
        )
        if recipe.classes_per_batch is None:
            return
        batch = recipe.batch_size
        expectation = "the devices must divide the batch, `classes_per_batch` × `images_per_class`"
        check(batch % self.replicas == 0, expectation, batch=batch, devices=self.replicas)

    def fit(self, model, batches, **options):
        """As `EmbeddingModel.fit`, on these devices, without a bar; every worker must call it.

        Args:
            model: A compiled `EmbeddingModel`.
            batches: Those of `training_batches` for this `part`.
            **options: Those of `fit_replicas`.
        """
        if self.replicas == 1:
            model.fit(batches, verbose=0, **options)  # a bar counts the steps of one epoch
            return
        from tfdml.models.replicas import fit_replicas

        fit_replicas(model, self.strategy, batches, **options)

    def check_agree(self, *texts):
        """Raises a ValueError on all workers if one of them was given other texts."""
        if not self.addresses:
            return
        import tensorflow as tf

        digest = hashlib.sha256("\n".join(texts).encode()).digest()
        [own] = self.strategy.extended.worker_devices[:1]
        with tf.device(own):
            number = tf.constant([int.from_bytes(digest[:7], "big")])

        def gather():
            return tf.distribute.get_replica_context().all_gather(number, axis=0)

        with self.stopping_together():
            found = self.strategy.run(tf.function(gather))
            numbers = self.strategy.experimental_local_results(found)[0].numpy()
        if len({*numbers.tolist()}) > 1:
            raise ValueError(
                "the workers differ in their recipe, classes or step: start the same command on "
                "all, with the same images and, to resume, the same folder runs/"
            )

    @contextlib.contextmanager
    def speaking(self):
        """Within it, workers other than the chief print errors alone."""
        if self.is_chief:
            yield
            return
        with (
            open(os.devnull, "w", encoding="utf-8", errors="ignore") as nowhere,
            contextlib.redirect_stdout(nowhere),
        ):
            yield

    @contextlib.contextmanager
    def stopping_together(self, go_on=""):
        """Within it, a worker that is lost ends this one with a sentence and exit status 1.

        Args:
            go_on: Further sentence, which says how to go on.
        """
        if not self.addresses:
            yield
            return
        import tensorflow as tf

        lost = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)
        lost += (tf.errors.InternalError, tf.errors.DeadlineExceededError)
        try:
            yield
        except lost as error:
            cause = error.message.partition("\n")[0]
            said = f"error: another worker stopped, or cannot be reached ({cause}). {go_on}"
            print(f"\n{program_name('train')}: {said}", file=sys.stderr, flush=True)
            os._exit(1)  # the others would be waited for


def of_environment(environment=os.environ):
    """The `Devices` of TF_CONFIG, or one device. Imports no TensorFlow.

    Raises:
        ValueError: If TF_CONFIG is not understood.
    """
    config = environment.get("TF_CONFIG")
    if config is None:
        return Devices()
    addresses, index = read_config(config)
    return Devices(None, addresses, index, Meeting(addresses, index))


def _workers(meeting, errors):
    import tensorflow as tf

    meeting.agree()  # that all have imported TensorFlow
    meeting.close()
    name, seconds = program_name("train"), SECONDS_TO_CONNECT
    sentence = f"{name}: error: TensorFlow did not connect the workers in {seconds} s"
    terminated = signal.getsignal(signal.SIGTERM)
    try:
        with at_most(seconds, sentence, errors):
            return tf.distribute.MultiWorkerMirroredStrategy()
    except (tf.errors.OpError, RuntimeError) as error:
        raise OSError(f"the workers of TF_CONFIG cannot start: {error}") from error
    finally:
        if in_main_thread():
            signal.signal(signal.SIGTERM, terminated)  # TensorFlow's handler ignores it


def _of_this_machine(text):
    import tensorflow as tf

    if text.startswith("cpu:"):
        return tf.distribute.MirroredStrategy(_parts_of_cpu(int(text[4:])))
    gpus = tf.config.list_physical_devices("GPU")
    expectation = (
        "TensorFlow finds no GPU on this machine; use --devices cpu:2 to try it on the processor, "
        "or leave --devices out"
    )
    check(gpus, expectation, devices=text)
    number = len(gpus) if text == "all" else int(text)
    expectation = "`devices` must not exceed the GPUs that TensorFlow finds"
    check(number <= len(gpus), expectation, devices=text, GPUs=len(gpus))
    return tf.distribute.MirroredStrategy([f"GPU:{index}" for index in range(number)])


def _parts_of_cpu(number):
    import tensorflow as tf

    [cpu] = tf.config.list_physical_devices("CPU")
    if tf.config.get_logical_device_configuration(cpu) is None:
        parts = [tf.config.LogicalDeviceConfiguration()] * number
        with contextlib.suppress(RuntimeError):  # it has started, with one
            tf.config.set_logical_device_configuration(cpu, parts)
    found = len(tf.config.list_logical_devices("CPU"))
    check(number <= found, "TensorFlow has started already", devices=f"cpu:{number}", CPUs=found)
    return [f"CPU:{index}" for index in range(number)]
