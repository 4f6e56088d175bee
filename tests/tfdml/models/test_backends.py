"""Trainings of 20 steps from equal weights and batches, which agree on all backends of Keras.

    python tests/tfdml/models/test_backends.py

writes `trainings.json` on TensorFlow, which other backends are compared with.
"""

import json
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
from small_models import by_default

from tfdml import EmbeddingModel, callbacks, losses, optimizers
from tfdml.layers import FusedBatchNormalization, UnitLength

BACKEND = keras.backend.backend()
KEPT = pathlib.Path(__file__).with_name("trainings.json")
STEPS, BATCH = 20, 16
# With a few units scores tie, and rounding decides which quadruplet is mined.
SIMILARITY = {"units": 32, "dropout": 0.0}
OBJECTIVES = {
    "triplet": {},
    "arcface": {"num_classes": 4, "scale": 8.0},
    "lifted": {"margin": 1.0},
    "hdc": {},
    "pddm": {"similarity": SIMILARITY},
    "memory": {"base": "contrastive", "size": 40, "start_step": 1},
    "density": {"base": "triplet", "initial_density": [0.1, 0.2, 0.3, 0.4]},
}


def built(name):
    """A model of a loss, with the same weights on each backend."""
    loss = losses.get(name, **OBJECTIVES[name])
    inputs = keras.Input((8, 8, 1))
    maps = keras.layers.Conv2D(4, 3)(keras.layers.Rescaling(1 / 127.5, offset=-1)(inputs))
    features = keras.layers.Flatten()(FusedBatchNormalization(momentum=0.9)(maps))
    rows = keras.layers.Dense(4 * loss.levels, name="embedding")(keras.ops.relu(features))
    model = EmbeddingModel(keras.Model(inputs, UnitLength()(rows)))
    options = {"momentum": 0.9, "l2": 1e-3, "global_clipnorm": 1.0}
    model.compile(optimizers.SGD(1e-3, multipliers={"^embedding/": 10.0}, **options), loss)
    rng = np.random.default_rng(0)
    for variable in model.trainable_variables:
        if len(variable.shape) >= 2:
            variable.assign(rng.normal(0, variable.shape[-2] ** -0.5, variable.shape))
    return model


def batches():
    """(steps * batch) images and labels, four of each class in a batch."""
    rng = np.random.default_rng(1)
    labels = np.stack([rng.permutation(BATCH) % 4 for _ in range(STEPS)]).ravel()
    centres = rng.uniform(0, 255, (4, 8, 8, 1))
    noise = rng.uniform(0, 255, (len(labels), 8, 8, 1))
    return (0.3 * centres[labels] + 0.7 * noise).astype("float32"), labels


def trained(name, *others):
    """A model after the training, and its mean loss after each step."""
    (images, labels), model, seen = batches(), built(name), []
    watch = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(logs["loss"])
    )
    options = {"batch_size": BATCH, "shuffle": False, "verbose": 0}
    model.fit(images, labels, callbacks=[watch, *others], **options)
    return model, seen


@pytest.mark.parametrize("name", by_default(OBJECTIVES, {"triplet", "memory"}))
def test_a_training_is_that_of_tensorflow(name):
    kept = json.loads(KEPT.read_text("utf-8"))[name]
    model, seen = trained(name)
    np.testing.assert_allclose(seen, kept["losses"], rtol=1e-4)
    images, _ = batches()
    np.testing.assert_allclose(model.embed(images[:4]), kept["embeddings"], atol=1e-3)
    start = built(name).embed(images[:4])
    assert np.abs(start - kept["embeddings"]).max() > 0.01  # which it did not have before


def test_callbacks_see_the_training(tmp_path, capsys):
    images, labels = batches()
    stop, given = callbacks.StopAt(12), []
    watching = [
        callbacks.StopOnNaN(),
        callbacks.RetrievalScores(images[:BATCH], labels[:BATCH]),
        callbacks.LossLogs(),
        callbacks.EmbeddingsOfEpoch([images[:BATCH]], lambda *received: given.append(received)),
        callbacks.ProgressBar(STEPS),
        callbacks.Checkpoint(tmp_path / "checkpoint.keras"),
    ]
    model, seen = trained("density", *watching, stop)
    assert len(seen) == 12 == int(model.optimizer.iterations)
    [(step, rows)] = given
    assert (step, rows.shape) == (0, (BATCH, 4))
    logs = model.history.history
    assert {"val_recall@1", "target_mean"} < set(logs)
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in printed] == ["2", "4", "6", "8", "10", "12"]
    restored = keras.models.load_model(tmp_path / "checkpoint.keras")
    targets = (keras.ops.convert_to_numpy(each.loss.layer.targets) for each in (model, restored))
    np.testing.assert_array_equal(*targets)
    images[3] = np.nan
    with pytest.raises(FloatingPointError, match=r"loss nan at step 13; the loss diverged.*0\.001"):
        model.fit(images, labels, shuffle=False, verbose=0, callbacks=watching[:1])


@pytest.mark.skipif(BACKEND == "tensorflow", reason="of the other backends")
def test_says_what_only_tensorflow_does():
    model = EmbeddingModel(built("triplet").embedder, micro_batch=4)
    with pytest.raises(ValueError, match=rf"`micro_batch` must be None .* backend='{BACKEND}'"):
        model.compile("sgd", "triplet")


@pytest.mark.skipif(BACKEND == "tensorflow", reason="of the other backends")
def test_needs_no_tensorflow():
    program = """
import sys
sys.modules["tensorflow"] = None  # as if it were not installed
import keras, numpy as np, tfdml
model = tfdml.EmbeddingModel(keras.Sequential([keras.Input((6,)), keras.layers.Dense(4)]))
model.compile("sgd", "arcface")
model.loss.prepare(np.arange(4))
model.compile(tfdml.optimizers.SGD(0.1), model.loss)
model.fit(np.eye(4, 6), np.arange(4), verbose=0, callbacks=[tfdml.callbacks.StopOnNaN()])
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]


if __name__ == "__main__":
    found = {}
    for each in OBJECTIVES:
        model, seen = trained(each)
        rows = model.embed(batches()[0][:4])
        found[each] = {
            "losses": [float(f"{loss:.7g}") for loss in seen],
            "embeddings": [[round(float(number), 5) for number in row] for row in rows],
        }
    text = ",\n".join(f"  {json.dumps(each)}: {json.dumps(found[each])}" for each in found)
    KEPT.write_text(f"{{\n{text}\n}}\n", "utf-8")
