"""What TensorFlow has for several devices, imported once they are to start."""

import contextlib
import hashlib
import re
import signal

import keras
import tensorflow as tf

from tfdml.checks import check
from tfdml.models.replicas import fit_replicas as fit_replicas
from tfdml.runs.devices import SECONDS_TO_CONNECT

LOST_WORKER = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.InternalError,
    tf.errors.DeadlineExceededError,
)


def cluster_strategy():
    """That of the workers of TF_CONFIG, once all have come."""
    try:
        with _ending_signals():
            return tf.distribute.MultiWorkerMirroredStrategy()
    except (tf.errors.OpError, RuntimeError) as error:
        raise OSError(f"the workers of TF_CONFIG cannot start: {error}") from error


@contextlib.contextmanager
def _ending_signals():
    """Within it Ctrl-C and an alarm end this process though C++ code holds Python's lock."""
    numbers = signal.SIGINT, signal.SIGTERM, signal.SIGALRM
    handlers = {number: signal.getsignal(number) for number in numbers}
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(SECONDS_TO_CONNECT)
    try:
        yield
    finally:
        signal.alarm(0)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def check_gpu():
    """Raises a ValueError unless Keras' backend computes on a GPU."""
    expectation = (
        "Keras finds no GPU on this machine: leave --devices out to train on the processor"
    )
    found = {"backend": keras.backend.backend(), "device": str(keras.ops.zeros(()).device)}
    check(re.search("gpu|cuda", found["device"], re.IGNORECASE), expectation, **found)


def machine_strategy(text):
    """That of the devices of this machine which `--devices` names."""
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
    [cpu] = tf.config.list_physical_devices("CPU")
    if tf.config.get_logical_device_configuration(cpu) is None:
        parts = [tf.config.LogicalDeviceConfiguration()] * number
        with contextlib.suppress(RuntimeError):  # it has started, with one
            tf.config.set_logical_device_configuration(cpu, parts)
    found = len(tf.config.list_logical_devices("CPU"))
    check(number <= found, "TensorFlow has started already", devices=f"cpu:{number}", CPUs=found)
    return [f"CPU:{index}" for index in range(number)]


def all_equal(strategy, text):
    """Whether all workers call this with the same text."""
    digest = hashlib.sha256(text.encode()).digest()
    with tf.device(strategy.extended.worker_devices[0]):
        number = tf.constant([int.from_bytes(digest[:7], "big")])

    def gather():
        return tf.distribute.get_replica_context().all_gather(number, axis=0)

    found = strategy.run(tf.function(gather))
    numbers = strategy.experimental_local_results(found)[0].numpy()
    return len({*numbers.tolist()}) == 1
