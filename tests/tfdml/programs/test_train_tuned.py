"""Runs that train a part of the network: the head on features, adapters, or nothing."""

import re

import keras
import numpy as np
import programs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
import yaml
from small_runs import SMALL, rejection, run, scores_of

import pipelines
from tfdml.models import backbone_of, build_embedder, load_adapters
from tfdml.programs import evaluate, train
from tfdml.runs.features import Features
from tfdml.serving.exported import load_signatures

OWN = """
import keras

def dense(shape):
    inputs = keras.Input(shape)
    x = keras.layers.Dense(8, "relu")(keras.layers.Flatten()(inputs / 16))
    return keras.Model(inputs, keras.layers.Dense(6)(x))
"""
SHORT = ["--loss", "triplet", "--checkpoint_every", "5", "--schedule", "constant", *SMALL]
KINDS = {
    "head": ["--tune", "head", *SHORT],
    "lora": ["--tune", "lora", "--lora_rank", "2", "--backbone", "own_dense:dense", *SHORT],
    "full": ["--layer_decay", "0.5", "--backbone", "own_dense:dense", *SHORT],
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder of a run of each kind, and what they printed."""
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "own_dense.py").write_text(OWN)
    printed = {
        kind: run("--run", kind, *options, "--steps", "10", cwd=folder)
        for kind, options in KINDS.items()
    }
    return folder, printed


def checkpoint(folder, name):
    return keras.models.load_model(folder / "runs" / name / "checkpoint.keras")


def served(folder, name, images):
    embed = load_signatures(folder / "saved_models" / name / "1")["embed_images"]
    return embed(images=images.astype("float32"))["embedding"].numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_is_trained_and_the_whole_saved_and_served(kind, runs):
    folder, _ = runs
    images, model = pipelines.load("digits").test.images[:9], checkpoint(folder, kind)
    layers = {re.sub(r"_\d+$", "", v.path.split("/")[-2]) for v in model.trainable_variables}
    assert layers == {"embedding"} | ({"dense"} if kind != "head" else set())
    np.testing.assert_allclose(served(folder, kind, images), model.embed(images), atol=1e-5)


def test_the_rates_of_a_full_tuning_fall_to_the_first_layers(runs):
    factors = checkpoint(runs[0], "full").optimizer.layer_multipliers
    assert factors == sorted(factors)
    assert factors[0] < factors[-1] == 1


def test_the_adapters_are_kept_alone(runs, monkeypatch):
    folder, _ = runs
    monkeypatch.syspath_prepend(folder)
    model = checkpoint(folder, "lora")
    keras.utils.clear_session()  # layers have the numbers of the run again
    embedder = build_embedder("own_dense:dense", 16, input_shape=(8, 8, 1))
    embedder.set_weights([w.numpy() for w in model.embedder.weights if "lora" not in w.path])
    load_adapters(embedder, folder / "runs" / "lora" / "adapters.npz")
    images = pipelines.load("digits").test.images[:9].astype("float32")
    np.testing.assert_allclose(embedder.predict(images, verbose=0), model.embed(images), atol=1e-6)


def test_a_run_starts_from_the_adapters_of_another(runs, monkeypatch):
    folder, _ = runs
    built = []
    monkeypatch.setattr(train, "export", lambda run, scores: built.append(run.model))
    start = ["--init_from", "runs/lora/adapters.npz", *KINDS["lora"]]
    run("--run", "again", *start, "--steps", "0", cwd=folder)
    run("--run", "further", *start, "--steps", "5", cwd=folder)
    source = checkpoint(folder, "lora").embedder.trainable_variables
    again, further = (each.embedder.trainable_variables for each in built)
    for before, same, trained in zip(source, again, further, strict=True):
        np.testing.assert_array_equal(same, before)
        assert np.abs(trained - before.value).max() > 0
    sentence = rejection(*start, "--lora_rank", "3", "--run", "other", cwd=folder)
    assert "`lora_rank` must be that of `init_from`, 2. Received: lora_rank=3" in sentence
    sentence = rejection(*KINDS["lora"], "--init_from", "lora", "--run", "other", cwd=folder)
    assert "of `tune` lora adapters.npz" in sentence


@pytest.mark.parametrize("kind", ["head", "lora"])
def test_the_scores_stand_beside_those_of_the_frozen_features(kind, runs):
    folder, printed = runs
    scores = scores_of(folder / "runs" / kind)
    gain = scores["trained_minus_frozen"]
    recall = {stage: scores[stage]["recall@1"] for stage in ("frozen", "trained")}
    assert gain["difference"] == pytest.approx(recall["trained"] - recall["frozen"])
    assert gain["low"] <= gain["difference"] <= gain["high"]
    assert f"frozen       {recall['frozen']:.4f}" in printed[kind]
    assert "95 % bootstrap interval over classes" in printed[kind]
    assert ("the frozen features. Try" in printed[kind]) == (gain["low"] <= 0)


@pytest.mark.usefixtures("without_export")
@pytest.mark.parametrize(
    "kind", ["head", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("lora", "full"))]
)
def test_a_part_goes_on_as_if_it_had_not_stopped(kind, runs, monkeypatch):
    folder, _ = runs
    monkeypatch.setattr(Features, "_embed", None)  # all features are in the file
    name = f"{kind}_stopped"
    run("--run", name, *KINDS[kind], "--steps", "5", cwd=folder)
    run("--run", name, "--resume", "--steps", "10", cwd=folder)
    images = pipelines.load("digits").test.images
    embeddings = [checkpoint(folder, each).embed(images) for each in (kind, name)]
    np.testing.assert_array_equal(*embeddings)


def test_features_are_those_of_the_backbone_and_of_views(runs, monkeypatch):
    folder, _ = runs
    monkeypatch.chdir(folder)
    dataset, embedder = pipelines.load("digits"), checkpoint(folder, "head").embedder
    split = dataset.train.subset(np.arange(7))
    features = Features(embedder, dataset)
    plain, shown = features.embedded(split), features.embedded(split, views=2)
    images = split.images.astype("float32")
    expected = backbone_of(embedder).predict(images, verbose=0)
    np.testing.assert_allclose(plain.inputs, expected, atol=1e-5)
    np.testing.assert_array_equal(shown.inputs[:7], plain.inputs)
    np.testing.assert_array_equal(shown.labels, np.tile(split.labels, 3))
    assert np.abs(np.diff(shown.inputs.reshape(3, 7, -1), axis=0)).max(axis=(1, 2)).min() > 1e-3
    next(folder.glob("runs/features_*.npz")).write_bytes(b"damaged")
    np.testing.assert_array_equal(features.embedded(split, views=2).inputs, shown.inputs)


def test_frozen_features_are_scored_and_exported(tmp_path):
    printed = run("--dataset", "digits", "--tune", "frozen", cwd=tmp_path)
    images, model = pipelines.load("digits").test.images[:9], checkpoint(tmp_path, "digits_frozen")
    features = backbone_of(model.embedder).predict(images.astype("float32"), verbose=0)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    np.testing.assert_allclose(served(tmp_path, "digits_frozen", images), features, atol=1e-5)
    settings = yaml.safe_load((tmp_path / "runs/digits_frozen/config.yaml").read_text())
    assert (settings["embedding_dim"], settings["steps"]) == (None, 0)
    assert "features of small_cnn:" in printed
    assert "untrained  " not in printed


@pytest.mark.parametrize("ending", ["npz", pytest.param("parquet", marks=pytest.mark.slow)])
def test_a_head_is_trained_on_features_of_other_tools(ending, tmp_path, rng):
    labels = np.repeat([f"class {number}" for number in range(8)], 6)
    rows = np.eye(8)[np.arange(48) // 6] + rng.normal(0, 0.4, (48, 8))
    rows, file = rows.astype("float32"), tmp_path / f"made.{ending}"
    if ending == "npz":
        np.savez(file, embeddings=rows, labels=labels)
    else:
        column = pa.FixedSizeListArray.from_arrays(rows.ravel(), 8)
        pq.write_table(pa.table({"embeddings": column, "labels": labels}), file)
    options = ["--dataset", f"features:{file}", "--embedding_dim", "4", "--loss", "npair"]
    printed = run("--run", "x", *options, "--steps", "4", "--checkpoint_every", "2", cwd=tmp_path)
    assert "24 images of 4 classes to train, 24 of 4 to score" in printed
    model = checkpoint(tmp_path, "x")
    embed = tf.saved_model.load(str(tmp_path / "saved_models/x/1")).signatures["serving_default"]
    found = embed(features=tf.constant(rows))["embedding"]
    np.testing.assert_allclose(found, model.embed(rows), atol=1e-5)
    run("--run", "x", "--resume", "--steps", "6", cwd=tmp_path)
    evaluated = programs.run(evaluate.main, "--embeddings", file, "--out", "x.json", cwd=tmp_path)
    assert "48 images of 8 classes" in evaluated.out
    rejected = programs.run(evaluate.main, "saved_models/x", cwd=tmp_path).sentence
    assert "features are scored by `evaluate.py --embeddings`" in rejected
