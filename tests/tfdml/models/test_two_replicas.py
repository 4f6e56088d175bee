"""Two replicas of one process make the update of one."""

import subprocess
import sys

import pytest

REPLICAS = """
import sys, warnings
import numpy as np, tensorflow as tf, keras
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
from tfdml import EmbeddingModel, losses

def train(strategy, loss, options):
    loss = losses.get(loss, **options)
    with strategy.scope():
        keras.utils.set_random_seed(0)
        inputs = keras.Input((6,))
        embedder = keras.Model(inputs, keras.layers.Dense(4)(inputs))
        model = EmbeddingModel(embedder)
        model.compile(optimizer=keras.optimizers.SGD(0.1), loss=loss)
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(48, 6)).astype("float32"), rng.permutation(np.arange(48) % 4)
    results = []
    for labels, lacking in ((labels, 0), (np.arange(48) // 16, 3)):  # and a class for each batch
        labels = labels.astype("uint8")
        batches = tf.data.Dataset.from_tensor_slices((rows, labels)).batch(16, drop_remainder=True)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            results.append(model.fit(batches, verbose=0).history["loss"][0])
        said = [str(each.message) for each in found if "batches of the" in str(each.message)]
        results.append(len(said))
        if said:
            assert lacking and f"{lacking} had no images of two classes" in said[0], said
        if lacking == 0:
            results.extend(map(np.array, model.weights))
    return results

def called(strategy, loss):
    # Of rows in the order of their classes, as a plain Keras model calls it.
    def of_part():
        part = slice(None)
        if strategy.num_replicas_in_sync == 2:
            index = tf.distribute.get_replica_context().replica_id_in_sync_group
            part = slice(4 * index, 4 * index + 4)
        return loss(tf.constant(LABELS)[part], tf.constant(ROWS)[part], sample_weight=None)
    per_replica = strategy.run(of_part)
    return float(strategy.reduce("SUM", per_replica, axis=None))

single, double = tf.distribute.get_strategy(), tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
ROWS, LABELS = np.eye(8, 4, dtype="float32") + 0.1, np.repeat([0, 1], 4)
INITIALIZER = {"class_name": "RandomNormal", "config": {"seed": 3}}
PROXIES = {"num_classes": 4, "initializer": INITIALIZER, "scale": 8.0}
OPTIONS = {
    "lifted": {"margin": 1.0},
    "density": {"base": "triplet", "initial_density": [0.1, 0.2, 0.3, 0.4]},
    "pddm": {"similarity": {"units": 4, "seed": 0, "dropout": 0.5}},
    "memory": {"base": "contrastive", "size": 40, "start_step": 1},
    "arcface": PROXIES,
    "proxy_anchor": PROXIES,
    "sampled_classes": {"base": {"name": "cosface", **PROXIES, "num_classes": 40}, "rate": 0.5},
    "recall_at_k": {"mix": 4, "rank_temperature": 0.1},
}
assert called(double, losses.get("triplet")) == called(single, losses.get("triplet")) > 0
for loss in sys.argv[1:]:
    one, two = (train(strategy, loss, OPTIONS[loss]) for strategy in (single, double))
    for of_one, of_two in zip(one, two, strict=True):
        np.testing.assert_allclose(of_two, of_one, rtol=1e-6, atol=1e-6, err_msg=loss)
    print(loss, len(one), "equal")
"""


# The variables of each, two losses and two numbers of warnings. Of density the program also trains
# the targets; of pddm the eight weights of a similarity. It compares what a cross-batch memory
# holds, too.
@pytest.mark.parametrize(
    "compared",
    [
        {"density": 7, "memory": 10},
        pytest.param(
            {"lifted": 6, "pddm": 14, "arcface": 7, "proxy_anchor": 7, "recall_at_k": 6}
            | {"sampled_classes": 7},
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda compared: "-".join(compared),
)
def test_two_replicas_make_the_update_of_one(compared):
    command = [sys.executable, "-c", REPLICAS, *compared]
    run = subprocess.run(command, capture_output=True, text=True)
    expected = [f"{loss} {count} equal" for loss, count in compared.items()]
    assert run.stdout.splitlines() == expected, run.stderr[-2000:]
