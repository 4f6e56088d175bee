"""The devices that a run trains on: one, several of this machine, or those of several workers."""

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import sys
from typing import Any

from tfdml.checks import check
from tfdml.quiet import import_tensorflow

HELP = (
    "Devices to train on, each with an equal part of every batch: `all` GPUs of this machine, a "
    "number of them, or `cpu:2` for two parts of the processor, to try it out. The loss compares "
    "the images of all parts, and loss and updates are those of one device, except that batch "
    "normalisation that is trained takes the statistics of a part, and that dropout draws for each "
    "part. If not given, one device. On several machines, start the same command on each "
    "with the variable TF_CONFIG as TensorFlow documents it, without --devices. A run may "
    "resume on other devices."
)
VARYING = ("groups", "whole_classes")
_WORKERS = ("chief", "worker")


@dataclasses.dataclass(frozen=True)
class Devices:
    """What a run trains on, as read from `--devices` and TF_CONFIG.

    Attributes:
        text: `--devices`, or None.
        addresses: Of all workers, the chief's first; empty for a single process.
        index: Of this worker among them.
        strategy: That of `tf.distribute`, once started; None for a single device.
    """

    text: str | None = None
    addresses: tuple = ()
    index: int = 0
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

    def started(self):
        """Starts TensorFlow on the devices; with several workers, waits for all of them.

        Returns:
            `Devices` with a strategy.

        Raises:
            ValueError: If there are fewer devices.
        """
        if self.addresses:
            print(f"Waiting for all {len(self.addresses)} workers of TF_CONFIG", flush=True)
            started = _workers
        elif self.text is not None:
            started = _of_this_machine
        else:
            return self
        return dataclasses.replace(self, strategy=import_tensorflow(lambda: started(self.text)))

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
        batch = recipe.classes_per_batch * recipe.images_per_class
        expectation = "the devices must divide the batch, `classes_per_batch` × `images_per_class`"
        check(batch % self.replicas == 0, expectation, batch=batch, devices=self.replicas)

    def fit(self, model, batches, **options):
        """As `EmbeddingModel.fit`, on these devices; every worker must call it.

        Args:
            model: A compiled `EmbeddingModel`.
            batches: Those of `training_batches` for this `part`.
            **options: Those of `fit_replicas`.
        """
        if self.strategy is None:
            model.fit(batches, **options)
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

        found = self.strategy.experimental_local_results(self.strategy.run(tf.function(gather)))
        if len(set(found[0].numpy().tolist())) > 1:
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
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            yield

    @contextlib.contextmanager
    def stopping_together(self, run):
        """Within it, a worker that is lost ends this one with a sentence and exit code 1."""
        if not self.addresses:
            yield
            return
        import tensorflow as tf

        lost = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)
        lost += (tf.errors.InternalError, tf.errors.DeadlineExceededError)
        try:
            yield
        except lost as error:
            print(
                f"\ntrain.py: stopped, as another worker stopped or cannot be reached. Go on "
                f"with: python train.py --run {run} --resume, on as many workers as there are\n"
                f"TensorFlow says: {error.message.splitlines()[0]}",
                file=sys.stderr,
                flush=True,
            )
            os._exit(1)  # the others would be waited for


def requested(text, environment=os.environ):
    """The `Devices` of `--devices` and TF_CONFIG. Imports no TensorFlow.

    Raises:
        ValueError: If one of them is not understood, or both are given.
    """
    config = environment.get("TF_CONFIG")
    if config is not None:
        expectation = "`--devices` must not be given with TF_CONFIG: each worker uses all its GPUs"
        check(text is None, expectation, devices=text)
        return Devices(None, *_read_config(config))
    if text is not None:
        known = re.fullmatch(r"all|(cpu:)?0*[1-9][0-9]{0,3}", text)
        expectation = "`devices` must be `all`, a number of GPUs, or cpu: and a number, as cpu:2"
        check(known, expectation, devices=text)
    return Devices(text)


def _read_config(text):
    """The addresses of all workers and the index of this one, of the JSON in TF_CONFIG."""
    form = (
        'TF_CONFIG must be JSON such as {"cluster": {"worker": ["host:port", "host:port"]}, '
        '"task": {"type": "worker", "index": 0}}'
    )
    try:
        config = json.loads(text)
        cluster, task = config["cluster"], config["task"]
        kind, index = task["type"], int(task["index"])
        jobs = {job: list(addresses) for job, addresses in cluster.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"{form}. Received: {text!r} ({reason})") from None
    expectation = "TF_CONFIG must have workers, and at most one chief, alone"
    check(jobs and set(jobs) <= set(_WORKERS), expectation, jobs=sorted(jobs))
    check(len(jobs.get("chief", [])) <= 1, expectation, jobs=jobs)
    expectation = "the task of TF_CONFIG must be one of its cluster"
    here = kind in jobs and 0 <= index < len(jobs[kind])
    check(here, expectation, task=task, cluster=jobs)
    addresses = [address for job in _WORKERS for address in jobs.get(job, [])]
    expectation = "the addresses of TF_CONFIG must be different texts HOST:PORT"
    are_addresses = all(re.fullmatch(r".+:\d+", str(address)) for address in addresses)
    check(are_addresses and len(set(addresses)) == len(addresses), expectation, cluster=jobs)
    return tuple(addresses), index + (len(jobs.get("chief", [])) if kind == "worker" else 0)


def _workers(_):
    import tensorflow as tf

    return tf.distribute.MultiWorkerMirroredStrategy()


def _of_this_machine(text):
    import tensorflow as tf

    if text.startswith("cpu:"):
        return tf.distribute.MirroredStrategy(_parts_of_cpu(int(text[4:])))
    gpus = tf.config.list_physical_devices("GPU")
    expectation = (
        "`devices` must not exceed the GPUs that TensorFlow finds; cpu:2 divides the processor"
    )
    number = len(gpus) if text == "all" else int(text)
    check(0 < number <= len(gpus), expectation, devices=text, GPUs=len(gpus))
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
