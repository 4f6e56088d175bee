"""A run of several levels: trained, each level scored, and the shallow ones exported alone."""

import json
import os
import pathlib
import re
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import evaluate
import pipelines
import train
from tfdml.evaluation import recall_at_k, split_levels, weigh_levels
from tfdml.serving import export

ROOT = pathlib.Path(__file__).parents[1]
SMALL = ["--dataset", "digits", "--loss", "hdc", "--embedding_dim", "4"]
SMALL += ["--classes_per_batch", "5", "--steps", "2", "--checkpoint_every", "2"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder in which a small run was trained."""
    folder = tmp_path_factory.mktemp("levels")
    command = [sys.executable, ROOT / "train.py", "--run", "small", *SMALL]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-2000:]
    return folder


@pytest.fixture(scope="module")
def embeddings(trained):
    model = keras.models.load_model(trained / "runs" / "small" / "checkpoint.keras")
    return model.embed(pipelines.load("digits").test.images)


@pytest.fixture
def here(trained, tmp_path, monkeypatch):
    """An empty working folder from which the run is read."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(export, "SECONDS", 0.05)
    return trained


def scores(folder, *arguments, name="evaluation"):
    evaluate.main([str(folder), "--nmi", "false", "--k", "1", *arguments])
    return json.loads(pathlib.Path("runs", folder.name, f"{name}.json").read_text())


def test_each_level_is_scored_alone_and_all_together(here, embeddings, capsys):
    labels = pipelines.load("digits").test.labels
    content = scores(here / "saved_models" / "small")
    assert embeddings.shape[1] == 12
    for number, level in enumerate(split_levels(embeddings, 3), start=1):
        of_level = content["levels"][f"level {number}"]
        assert of_level["recall@1"] == pytest.approx(recall_at_k(level, labels, k=1)[1], abs=2e-3)
        distances = np.linalg.norm(level[:50, None] - level[:50], axis=2)
        assert of_level["positive_mean"] < of_level["negative_mean"] < distances.max()
    alone = [of_level["recall@1"] for of_level in content["levels"].values()]
    assert len(set(alone)) == 3
    together = recall_at_k(embeddings, labels, k=1)[1]
    assert content["scores"]["recall@1"] == pytest.approx(together, abs=2e-3)
    printed = capsys.readouterr().out
    assert "Each level alone:" in printed
    assert f"level 2  {alone[1]:10.4f}" in printed


def test_levels_are_weighed(here, embeddings):
    content = scores(
        here / "saved_models" / "small",
        *("--level_weights", "[0, 0, 2.5]"),
        name="evaluation_weights_0_0_2.5",
    )
    deepest = content["levels"]["level 3"]
    assert content["scores"]["recall@1"] == pytest.approx(deepest["recall@1"], abs=2e-3)
    assert content["distances"]["lda"] == pytest.approx(deepest["lda"], rel=1e-4)
    model = keras.models.load_model(here / "runs" / "small" / "checkpoint.keras")
    images = pipelines.load("digits").test.images[:20]
    np.testing.assert_allclose(
        model.embed(images, level_weights=(1, 2, 3)),
        weigh_levels(embeddings[:20], (1, 2, 3)),
        atol=1e-6,
    )


@pytest.mark.parametrize("levels", [1, 2])
def test_shallow_levels_are_exported_alone(here, embeddings, levels, capsys):
    out = pathlib.Path("shallow")
    for version in ("1", "2"):  # none is overwritten
        export.main([str(here / "runs" / "small"), "--levels", str(levels), "--out", str(out)])
        printed = capsys.readouterr().out
        assert printed.startswith(f"shallow/{version}: ")
        assert printed.count(" images/s") == 2
    images = pipelines.load("digits").test.images[:20]
    embed = tf.saved_model.load("shallow/1").signatures["embed_images"]
    shallow = embed(images=tf.constant(images, tf.float32))["embedding"]
    np.testing.assert_allclose(shallow, embeddings[:20, : 4 * levels], atol=1e-6)
    assert size_of(out / "1") < size_of(here / "saved_models" / "small" / "1")
    content = scores(out)
    assert set(content.get("levels", {})) == ({"level 1", "level 2"} if levels == 2 else set())


def size_of(folder):
    return sum(path.stat().st_size for path in (folder / "variables").iterdir())


def test_a_whole_run_is_exported_again_beside_the_first(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(export, "SECONDS", 0.05)
    monkeypatch.chdir(trained)
    export.main(["runs/small"])
    assert capsys.readouterr().out.startswith("saved_models/small/2: ")
    content = tf.io.encode_png(tf.zeros((8, 8, 1), tf.uint8))[None]
    first, again = (
        tf.saved_model.load(f"saved_models/small/{version}").signatures["serving_default"](content)
        for version in (1, 2)
    )
    np.testing.assert_allclose(first["embedding"], again["embedding"], atol=1e-6)
    assert (pathlib.Path("saved_models/small/2/assets.extra") / "recipe.yaml").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing"], "no SavedModel in saved_models/missing: the run has to be complete"),
        (["runs/small", "--levels", "4"], "`levels` must be from 1 to those of the embedder"),
        (["runs/small", "--levels", "0"], "`levels` must be from 1 to those of the embedder"),
    ],
)
def test_export_refuses_what_there_is_not(arguments, message, trained, monkeypatch, capsys):
    monkeypatch.chdir(trained)
    with pytest.raises(SystemExit, match="2"):
        export.main(arguments)
    assert message in capsys.readouterr().err
    assert not list(pathlib.Path("saved_models").glob("small_levels*"))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("[1, 2]", "`level_weights` must have one number per level. Received: .*levels=3"),
        ("[0, 0, 0]", "`level_weights` must not all be 0"),
        ("[1, 1, 1]", "`level_weights` are for `rank_by` distance"),
    ],
)
def test_evaluate_refuses_wrong_weights(weights, message, here, capsys):
    arguments = ["--level_weights", weights]
    arguments += ["--rank_by", "similarity"] if "rank_by" in message else []
    with pytest.raises(SystemExit, match="2"):
        evaluate.main([str(here / "saved_models" / "small"), *arguments])
    assert re.search(message, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--levels", "2"], "`levels` must be those of loss 'hdc', 3. Received: levels=2"),
        (["--levels", "4"], "`levels` must be 1, 2 or 3. Received: levels=4"),
        (["--dropout", "[0.5, 0.5]"], "`dropout` must be one share, or one for each level"),
        (["--dropout", "[0.5, 1.0, 0]"], "`dropout` must be >= 0 and < 1"),
    ],
)
def test_train_refuses_levels_that_do_not_fit(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        train.main([*SMALL, *arguments])
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_another_loss_may_train_all_levels_as_one():
    recipe, _, _ = train.parse(["--loss", "contrastive", "--levels", "3", "--run", "unused"])
    train.check_settings(recipe)
    dataset = pipelines.load("digits")
    assert train.build_model(recipe, dataset).embedder.output_shape == (None, 384)
