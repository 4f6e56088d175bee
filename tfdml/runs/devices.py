"""The devices that a run trains on: one, several of this machine, or those of several workers."""

import contextlib
import dataclasses
import io
import json
import os
import re
import sys
from typing import Any

import tfdml
from tfdml import runs
from tfdml.checks import check, keras_setting
from tfdml.command_line import program_name
from tfdml.quiet import import_tensorflow

HELP = (
    "Devices to train on, each with an equal part of every batch: `all` for all GPUs of this "
    "machine, a number of GPUs, or `cpu:2` to try two devices on the processor. `gpu` is one GPU, "
    "on any backend of Keras. If not given, a GPU where there is one, else the processor. The loss "
    "compares the images of all parts, so that losses and updates equal those of one device, with "
    "two exceptions: trained batch normalisation uses the statistics of each part, and dropout "
    "draws for each part. For several machines, start the same command on each, without --devices, "
    "with the variable TF_CONFIG that TensorFlow documents. A run may resume on other devices."
)
SECONDS_TO_CONNECT = 600  # to wait for the last worker
_FORM = (
    'TF_CONFIG must be JSON such as {"cluster": {"worker": ["host:port", "host:port"]}, '
    '"task": {"type": "worker", "index": 0}}, with different addresses, one chief at most, and a '
    "task of its cluster"
)


@dataclasses.dataclass
class Devices:
    """What a run trains on, as read from `--devices` and TF_CONFIG."""

    text: str | None = None  # `--devices`
    addresses: tuple = ()  # of all workers, the chief's first; empty for a single process
    index: int = 0  # of this worker among them
    strategy: Any = None  # that of `tf.distribute`, once started; None for a single device

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
        """These, or those of `--devices`, which a worker does not take."""
        if text is None:
            return self
        expectation = "`--devices` must not be given with TF_CONFIG: each worker uses all its GPUs"
        check(not self.addresses, expectation, devices=text)
        known = re.fullmatch(r"all|gpu|(cpu:)?0*[1-9][0-9]{0,3}", text)
        expectation = "`devices` must be `all`, `gpu`, a number of GPUs, or cpu: and a number"
        check(known, expectation, devices=text)
        return Devices(text)

    def check_backend(self, micro_batch):
        """Raises a ValueError for what other backends of Keras than TensorFlow cannot do."""
        backend, _ = keras_setting("backend")
        expectation = (
            "several devices and `micro_batch` need the TensorFlow backend of Keras; on JAX, "
            "`keras.distribution` divides the batches of a `fit` of your own"
        )
        one = self.text in (None, "gpu") and not self.addresses and micro_batch is None
        check(one or backend == "tensorflow", expectation, backend=backend)

    def start(self):
        """Starts TensorFlow on several devices, once all workers have come; returns itself."""
        if self.addresses:
            wait = f"{SECONDS_TO_CONNECT // 60} minutes at most"
            print(f"Waiting for all {len(self.addresses)} workers, {wait}", file=sys.stderr)
            self.strategy = import_tensorflow(runs.cluster_strategy)
        elif self.text == "gpu":
            import_tensorflow(runs.check_gpu)
        elif self.text is not None:
            self.strategy = import_tensorflow(lambda: runs.machine_strategy(self.text))
        return self

    def check(self, recipe):
        """Raises a ValueError for a recipe that these devices cannot train."""
        if self.replicas == 1:
            return
        several = recipe.tune in ("full", "lora")
        recipe.check(several, "`tune` head and frozen are for one device")
        even = recipe.sampler not in ("groups", "whole_classes")
        batches = f"those of `sampler` {recipe.sampler} vary in size"
        recipe.check(even, f"several devices divide batches evenly, and {batches}")
        expectation = "`precision` mixed_float16 is for one device, as some may skip a step that "
        expectation += "others make. Use mixed_bfloat16"
        recipe.check(recipe.precision != "mixed_float16", expectation)
        batch = recipe.batch_size
        expectation = "the devices must divide the batch, `classes_per_batch` × `images_per_class`"
        check(batch % self.replicas == 0, expectation, batch=batch, devices=self.replicas)

    def fit(self, model, batches, **options):
        """As `EmbeddingModel.fit`, on these devices; every worker must call it."""
        if self.replicas == 1:
            callbacks = options.pop("callbacks")
            known = {"epochs": options["epochs"], "steps": options["steps_per_epoch"]}
            watching = tfdml.callbacks.WithoutWaiting(callbacks, model=model, **known)
            model.fit(batches, callbacks=watching, **options)
        else:
            runs.fit_replicas(model, self.strategy, batches, **options)

    def check_agree(self, *texts):
        """Raises a ValueError on all workers if one of them was given other texts."""
        if self.addresses:
            with self.stopping_together():
                agree = runs.all_equal(self.strategy, "\n".join(texts))
            if not agree:
                raise ValueError(
                    "the workers differ in their recipe, classes or step: start the same command "
                    "on all, with the same images and, to resume, the same folder runs/"
                )

    def speaking(self):
        """Within it, workers other than the chief print errors alone."""
        nowhere = contextlib.redirect_stdout(io.StringIO())
        return contextlib.nullcontext() if self.is_chief else nowhere

    @contextlib.contextmanager
    def stopping_together(self, go_on=""):
        """Within it, a lost worker ends this one with exit status 1; `go_on` says how to."""
        try:
            yield
        except Exception as error:
            if not self.addresses or not isinstance(error, runs.LOST_WORKER):
                raise
            cause = str(error).partition("\n")[0]
            said = f"error: another worker stopped, or cannot be reached ({cause}). {go_on}"
            print(f"\n{program_name('train')}: {said}", file=sys.stderr, flush=True)
            os._exit(1)  # the others would be waited for


def find_devices(environment=os.environ):
    """The `Devices` of TF_CONFIG, or one device."""
    config = environment.get("TF_CONFIG")
    return Devices() if config is None else Devices(None, *read_config(config))


def read_config(text):
    """The addresses of all workers, the chief's first, and the index of this one, of TF_CONFIG."""
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
        config = json.loads(text)
        jobs, kind, index = config["cluster"], config["task"]["type"], config["task"]["index"]
        chiefs, workers, index = jobs.get("chief", []), jobs.get("worker", []), int(str(index))
        addresses = chiefs + workers
        valid = (
            set(jobs) <= {"chief", "worker"}
            and len(chiefs) <= 1
            and index in range(len(jobs[kind]))
            and all(re.fullmatch(r".+:0*[1-9]\d{0,4}", address) for address in addresses)
            and len(set(addresses)) == len(addresses)
        )
        if valid:
            return tuple(addresses), index + (len(chiefs) if kind == "worker" else 0)
    raise ValueError(f"{_FORM}. Received: TF_CONFIG={text!r}")
