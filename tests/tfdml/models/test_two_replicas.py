"""Two replicas of one process make the update of one."""

import subprocess
import sys

import pytest

REPLICAS = """
import sys
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
    labels = labels.astype("uint8")
    batches = tf.data.Dataset.from_tensor_slices((rows, labels)).batch(16, drop_remainder=True)
    logs = model.fit(batches, verbose=0).history
    return logs["loss"][0], *map(np.array, model.weights)

single, double = tf.distribute.get_strategy(), tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
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
for loss in sys.argv[1:]:
    one, two = (train(strategy, loss, OPTIONS[loss]) for strategy in (single, double))
    for of_one, of_two in zip(one, two, strict=True):
        np.testing.assert_allclose(of_two, of_one, rtol=1e-6, atol=1e-6, err_msg=loss)
    print(loss, len(one), "equal")
"""


# The loss and the variables of each. Of density the program also trains the targets; of pddm the
# eight weights of a similarity. It compares what a cross-batch memory holds, too.
@pytest.mark.parametrize(
    "compared",
    [
        {"density": 4, "memory": 7},
        pytest.param(
            {"lifted": 3, "pddm": 11, "arcface": 4, "proxy_anchor": 4, "recall_at_k": 3}
            | {"sampled_classes": 4},
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
