"""`train.py` on other backends of Keras: what it trains, resumes and exports."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from small_runs import SMALL

from pipelines import evaluation_batches, load

TRAIN = pathlib.Path(__file__).parents[3] / "train.py"
PARTS = [*SMALL, "--loss", "arcface", "--run", "small", "--checkpoint_every", "5"]


def train(backend, *arguments, cwd):
    environment = {**os.environ, "KERAS_BACKEND": backend, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, str(TRAIN), *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, encoding="utf-8")


def embedded(checkpoint, images):
    """Embeddings of a checkpoint by a process on JAX."""
    code = "import sys, keras, numpy, tfdml; tfdml.register();"
    code += "model = keras.models.load_model(sys.argv[1]);"
    code += "numpy.save(sys.argv[3], model.embed(numpy.load(sys.argv[2])))"
    names = [checkpoint.with_name(name) for name in ("images.npy", "embeddings.npy")]
    np.save(names[0], images)
    command = [sys.executable, "-c", code, str(checkpoint), *map(str, names)]
    subprocess.run(command, check=True, env={**os.environ, "KERAS_BACKEND": "jax"})
    return np.load(names[1])


@pytest.mark.slow
def test_a_run_trains_resumes_and_exports(tmp_path):
    result = train("jax", *PARTS, "--steps", "5", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "Recall@1" in result.stdout
    result = train("jax", "--run", "small", "--resume", "--steps", "10", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    scores = json.loads((tmp_path / "runs/small/scores.json").read_text())
    assert scores["steps"] == 10

    dataset = load("digits")
    images = next(iter(evaluation_batches(dataset.test, dataset.image_size, 8))).numpy()
    version = tmp_path / "saved_models/small/2"
    served = tf.saved_model.load(str(version)).signatures["embed_images"]
    rows = served(images=tf.constant(images))["embedding"].numpy()
    expected = embedded(tmp_path / "runs/small/checkpoint.keras", images)
    np.testing.assert_allclose(rows, expected, atol=1e-5)


def test_several_devices_are_of_tensorflow_alone(tmp_path):
    result = train("jax", *SMALL, "--devices", "cpu:2", cwd=tmp_path)
    assert result.returncode == 2
    assert "keras.distribution" in result.stderr.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []
