"""Runs of objectives that learn something of their own, and of mixed precision."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from small_runs import SMALL, TWO_STEPS, run

import pipelines
from tfdml.evaluation import recall_at_k
from tfdml.models.precision import in_float32
from tfdml.programs import train
from tfdml.runs.network import read_model


@pytest.mark.usefixtures("without_export")
def test_shuffled_batches_train_proxies_from_class_means_and_resume(tmp_path):
    flags = ["--run", "r", "--loss", "proxy_anchor"]
    flags += ["--sampler", "shuffled", "--images_per_class", "1", "--clip_value", "0.001"]
    flags += ["--freeze_batch_norm", "true", "--weight_decay", "0.01", "--checkpoint_every", "1"]
    printed = run(*SMALL, *flags, "--steps", "1", cwd=tmp_path)
    assert "Embedding the training images for the loss" in printed
    checkpoint = tmp_path / "runs" / "r" / "checkpoint.keras"
    before = read_model(checkpoint)
    printed = run("--run", "r", "--resume", "--steps", "3", cwd=tmp_path)
    assert "Embedding the training images for the loss" not in printed
    after = read_model(checkpoint)
    assert (int(after.optimizer.iterations), after.optimizer.clipvalue) == (3, 0.001)
    for model in (before, after):
        for layer in model.embedder.layers:
            if isinstance(layer, keras.layers.BatchNormalization):
                assert not layer.trainable
                assert not np.array(layer.moving_mean).any()
    moved = np.array(after.loss.layer.proxies) - np.array(before.loss.layer.proxies)
    assert np.abs(moved).max() > 0


@pytest.mark.slow  # models/test_embedder.py saves a network of 16 bits
def test_a_run_of_mixed_precision_scores_and_exports_in_float32(tmp_path):
    name, precision = ["--run", "mixed"], "mixed_float16"  # which scales the loss
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "export", lambda *_: None)
        run(*SMALL, *TWO_STEPS, *name, "--precision", precision, cwd=tmp_path)
    run(*name, "--resume", "--steps", "4", cwd=tmp_path)
    model = read_model(tmp_path / "runs" / "mixed" / "checkpoint.keras")
    policies = {layer.dtype_policy.name for layer in model.embedder.layers}
    assert policies == {precision, "float32"}
    assert keras.config.dtype_policy().name == "float32"
    digits = pipelines.load("digits").test
    float32 = in_float32(model.embedder).predict(digits.images, verbose=0)
    scores = json.loads((tmp_path / "runs" / "mixed" / "scores.json").read_text())
    assert scores["trained"]["recall@1"] == recall_at_k(float32, digits.labels)[1]
    served = tf.saved_model.load(str(tmp_path / "saved_models" / "mixed" / "1"))
    images = tf.cast(digits.images[:8], tf.float32)
    embeddings = served.signatures["embed_images"](images=images)["embedding"]
    np.testing.assert_allclose(embeddings, float32[:8], atol=1e-6)
    assert np.abs(model.embed(digits.images[:8]) - float32[:8]).max() > 1e-5
