"""An objective of tfdml: its value, its gradients and their time, in a graph of TensorFlow."""

import importlib.metadata

import numpy as np

from benchmarks.loss_speed import fill, gradient_step
from tfdml.quiet import import_tensorflow

WARM = 8  # rows of the call that is not measured


def prepare(settings, folder):
    import_tensorflow()
    import tensorflow as tf

    with np.load(folder / settings["inputs"]) as arrays:
        arrays = dict(arrays)
    loss = loss_of(settings, arrays)
    rows, labels = tf.constant(arrays["rows"], settings["dtype"]), tf.constant(arrays["labels"])
    step, _ = gradient_step(loss, rows.shape)
    work = traced(step, labels, rows)
    work.versions = versions()
    return work


def loss_of(settings, arrays):
    """The loss, built, with the proxies or the memory of the arrays."""
    from tfdml import losses

    options = dict(settings["options"])
    if "proxies" in arrays:
        options["num_classes"] = len(arrays["proxies"])
    loss = losses.get(settings["name"], **options)
    for layer in loss.layers:
        layer.build(arrays["rows"].shape)
    if "proxies" in arrays:
        proxies = loss.layer.proxies
        proxies.assign(arrays["proxies"].reshape(proxies.shape))
    if "memory_rows" in arrays:
        fill(loss, arrays["memory_rows"], arrays["memory_labels"])
    return loss


def versions():
    return {name: importlib.metadata.version(name) for name in ("tensorflow", "keras")}


def traced(step, labels, rows):
    """The work: a step for any batch size, run once before, so that its graph is not counted."""
    import tensorflow as tf

    specs = [tf.TensorSpec([None, *each.shape[1:]], each.dtype) for each in (labels, rows)]
    step = step.get_concrete_function(*specs)
    step(labels[:WARM], rows[:WARM])

    def work():
        value, gradient, *_ = step(labels, rows)
        return {"value": value.numpy(), "gradient": gradient}

    return work
