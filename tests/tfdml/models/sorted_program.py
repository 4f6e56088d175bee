"""Trains and evaluates each named loss on rows in the order of their classes.

    python sorted_program.py NAME,NAME,...

Prints what `measured` returns on two replicas; tests compare it with that on one device.
"""

import json
import sys
import warnings

import keras
import numpy as np
import replicas_program
import tensorflow as tf

from tfdml import EmbeddingModel, losses

ROWS = np.random.default_rng(0).normal(size=(32, 6)).astype("float32")
LABELS = np.repeat(np.arange(4), 8).astype("uint8")  # of batches of 8, each is of one class
MIXED = np.concatenate([LABELS[:16], np.arange(16) % 4])  # and of these, every other half
OPTIONS = {
    **replicas_program.OPTIONS,
    "pddm": {"similarity": {"units": 4, "seed": 0, "dropout": 0.5}},
}


def measured(name, strategy):
    """Losses, numbers of warnings and weights: of an `EmbeddingModel`, and a plain one if it may.

    {"KIND DATA": [loss in training, loss in evaluation, warnings], "KIND weights": [number, ...]}
    """
    loss, results = losses.get(name, **OPTIONS.get(name, {})), {}
    for kind in ("embedding", "plain"):
        if kind == "plain" and loss.layers:
            continue
        with strategy.scope():
            keras.utils.set_random_seed(0)
            model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(6)])
            model = EmbeddingModel(model) if kind == "embedding" else model
            model.compile(keras.optimizers.SGD(1e-3), loss=loss, jit_compile=False)
        for data, labels in (("sorted", LABELS), ("mixed", MIXED), ("balanced", MIXED[16:])):
            batches = tf.data.Dataset.from_tensor_slices((ROWS[: len(labels)], labels)).batch(8)
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                fitted = model.fit(batches, shuffle=False, verbose=0).history["loss"][0]
                evaluated = model.evaluate(batches, verbose=0)
            said = [str(each.message) for each in found if "batches of the" in str(each.message)]
            results[f"{kind} {data}"] = [fitted, evaluated, len(said)]
        weights = np.concatenate([np.ravel(variable) for variable in model.variables])
        results[f"{kind} weights"] = weights.tolist()
    return results


if __name__ == "__main__":
    parts = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], parts)
    replicas = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    print(json.dumps({name: measured(name, replicas) for name in sys.argv[1].split(",")}))
