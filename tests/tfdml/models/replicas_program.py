"""Trains 20 steps of each named objective on replicas, in a process that tests start.

    python replicas_program.py OUT.npz one|cpu:N|workers NAME,NAME,...

`one` calls `EmbeddingModel.fit`; `workers` are those of TF_CONFIG. Writes losses and weights.
"""

import sys

import keras
import numpy as np
import tensorflow as tf

from tfdml import EmbeddingModel, losses, optimizers
from tfdml.models.replicas import fit_replicas
from tfdml.runs.devices import find_devices

STEPS, BATCH = 20, 16
INITIALIZER = {"class_name": "RandomNormal", "config": {"seed": 3}}
PROXIES = {"num_classes": 4, "initializer": INITIALIZER, "scale": 8.0}
SAMPLED = {"name": "cosface", **PROXIES, "num_classes": 40}
# With a few units scores tie, and rounding decides which quadruplet is mined.
SIMILARITY = {"similarity": {"units": 32, "seed": 0, "dropout": 0.0}}
OPTIONS = {
    **dict.fromkeys(("arcface", "cosface", "norm_softmax", "proxy_anchor", "proxy_nca"), PROXIES),
    **dict.fromkeys(("soft_triple", "sub_center_arcface"), PROXIES),
    **dict.fromkeys(("pddm", "pddm_triplet", "lmdm"), SIMILARITY),
    "density": {"base": "triplet", "initial_density": [0.1, 0.2, 0.3, 0.4]},
    "histogram": {"num_bins": 11},  # at each node, rounding changes the slope
    "lifted": {"margin": 1.0},  # with a larger one the updates, and their rounding, are larger
    "guarded": {"base": "contrastive", "margin": 0.0},
    "matryoshka": {"base": "triplet", "dims": (6, 3)},
    "memory": {"base": "contrastive", "size": 40, "start_step": 1},
    "regularized": {"base": "contrastive", "regularizer": "gor"},
    "sampled_classes": {"base": SAMPLED, "rate": 0.5},
    "weighted_sum": {"parts": {"cosface": [0.5, PROXIES], "triplet": 1.0}},
    "recall_at_k": {"mix": 4, "rank_temperature": 0.1},
}
# Options of the training, each with a loss.
VARIANTS = {
    "unclipped": ("lifted", {}, {}),
    "by value": ("triplet", {"clipvalue": 1e-3}, {}),
    "micro": ("multi_similarity", {}, {"micro_batch": 3}),
    "ema": ("contrastive", {"use_ema": True, "ema_momentum": 0.9}, {}),
}


def train(name, devices):
    """Losses and weights of an objective, or of a variant."""
    loss, options, micro = VARIANTS.get(name, (name, {"global_clipnorm": 0.5}, {}))
    keras.utils.set_random_seed(0)
    inputs = keras.Input((8,))
    rows = keras.layers.Dense(8, activation="tanh")(inputs)
    model = EmbeddingModel(keras.Model(inputs, keras.layers.Dense(6)(rows)), **micro)
    optimizer = optimizers.SGD(0.02, momentum=0.9, **options)
    model.compile(optimizer=optimizer, loss=losses.get(loss, **OPTIONS.get(loss, {})))
    rng = np.random.default_rng(0)
    images = rng.normal(size=(STEPS, BATCH, 8)).astype("float32")
    labels = np.stack([rng.permutation(np.arange(BATCH) // 4) for _ in range(STEPS)])
    index, count = devices.part
    part = slice(index * BATCH // count, (index + 1) * BATCH // count)
    batches = tf.data.Dataset.from_tensor_slices((images[:, part], labels[:, part]))
    seen = []
    note = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(logs["loss"])
    )
    options = {"steps_per_epoch": STEPS, "epochs": 1, "callbacks": [note]}
    if devices.strategy is None:
        model.fit(batches, verbose=0, **options)
    else:
        fit_replicas(model, devices.strategy, batches, **options)
    weights = {f"{name}/{number}": weight for number, weight in enumerate(model.get_weights())}
    return {f"{name}/loss": np.array(seen), **weights}


def main(path, kind, names):
    devices = find_devices().named(kind if kind.startswith("cpu") else None).start()
    results = {}
    for name in names.split(","):
        results |= train(name, devices)
    np.savez(path, **results)


if __name__ == "__main__":
    main(*sys.argv[1:])
