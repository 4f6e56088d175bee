"""A run of several levels: trained, each level scored, and the shallow ones exported alone."""

import json
import pathlib

import keras
import numpy as np
import programs
import pytest
import tensorflow as tf
from small_runs import run

import pipelines
from tfdml import export
from tfdml.evaluation import distance_statistics, recall_at_k, split_levels
from tfdml.programs import evaluate, train
from tfdml.runs.network import build_model
from tfdml.runs.prepared import check_model
from tfdml.serving.metadata import read_metadata
from tfdml.serving.versions import newest_version

pytestmark = pytest.mark.usefixtures("without_xla", "loaded_once", "few_digits")

FLAGS = ["--dataset", "digits", "--classes_per_batch", "5", "--steps", "2"]
FLAGS += ["--checkpoint_every", "2"]
OF_LEVELS, OF_SIZES = "saved_models/small", "saved_models/cut"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of two small runs: of three levels, and of embeddings that can be cut short."""
    folder = tmp_path_factory.mktemp("levels")
    run("--run", "small", *FLAGS, "--embedding_dim", "4", "--loss", "hdc", cwd=folder)
    sizes = ["--loss_options.base", "npair", "--loss_options.dims", "[8, 4, 2]"]
    flags = [*FLAGS, "--embedding_dim", "8", "--loss", "matryoshka", *sizes]
    run("--run", "cut", *flags, cwd=folder)
    return folder


@pytest.fixture(autouse=True)
def _inside(trained, monkeypatch):
    monkeypatch.chdir(trained)


@pytest.fixture(scope="module")
def embeddings(trained):
    """{name of a run: its embeddings of the test images}."""
    images, found = pipelines.load("digits").test.images, {}
    for name in ("small", "cut"):
        model = keras.models.load_model(trained / "runs" / name / "checkpoint.keras")
        found[name] = model.embed(images)
    return found


def scores(model, *arguments, name="evaluation"):
    evaluate.main([model, "--nmi", "false", "--k", "1", *arguments])
    return json.loads(pathlib.Path("runs", pathlib.Path(model).name, f"{name}.json").read_text())


def test_each_level_is_scored_alone_and_all_together_by_weights(embeddings, capsys):
    labels, embeddings = pipelines.load("digits").test.labels, embeddings["small"]
    content = scores(OF_LEVELS)
    assert embeddings.shape[1] == 12
    for number, level in enumerate(split_levels(embeddings, 3), start=1):
        found = content["levels"][f"level {number}"]
        assert found["recall@1"] == pytest.approx(recall_at_k(level, labels, k=1)[1], abs=2e-3)
        expected = distance_statistics(level, labels)
        assert found["positive_mean"] == pytest.approx(expected["positive_mean"], rel=1e-5)
    alone = [found["recall@1"] for found in content["levels"].values()]
    assert len(set(alone)) == 3
    together = recall_at_k(embeddings, labels, k=1)[1]
    assert content["scores"]["recall@1"] == pytest.approx(together, abs=2e-3)
    printed = capsys.readouterr().out
    assert "Scores of each level or size, by distance:" in printed
    assert f"level 2  {alone[1]:10.4f}" in printed
    weighed = scores(OF_LEVELS, "--level_weights", "[0, 0, 2.5]", name="evaluation_weights_0_0_2.5")
    assert weighed["scores"]["recall@1"] == pytest.approx(alone[2], abs=2e-3)
    deepest = weighed["levels"]["level 3"]
    assert weighed["distances"]["lda"] == pytest.approx(deepest["lda"], rel=1e-4)


def test_shallow_levels_are_exported_alone(embeddings):
    export.main(["runs/small", "--levels", "2", "--out", "shallow"])
    images = pipelines.load("digits").test.images[:20]
    embed = tf.saved_model.load("shallow/1").signatures["embed_images"]
    shallow = embed(images=tf.constant(images, tf.float32))["embedding"]
    np.testing.assert_allclose(shallow, embeddings["small"][:20, :8], atol=1e-6)
    sizes = [
        sum(path.stat().st_size for path in pathlib.Path(model, "1/variables").iterdir())
        for model in ("shallow", OF_LEVELS)
    ]
    assert sizes[0] < sizes[1]
    assert set(scores("shallow")["levels"]) == {"level 1", "level 2"}


def test_another_loss_may_train_all_levels_as_one():
    recipe, *_ = train.parse(["--loss", "contrastive", "--levels", "3", "--run", "unused"])
    check_model(recipe)
    dataset = pipelines.load("digits")
    recipe, _ = recipe.completed(5)
    assert build_model(recipe, dataset.train, dataset).embedder.output_shape == (None, 384)


def test_every_size_of_a_matryoshka_run_is_scored_and_one_alone(embeddings):
    labels, embeddings = pipelines.load("digits").test.labels, embeddings["cut"]
    sizes = scores(OF_SIZES)["levels"]
    assert list(sizes) == ["first 2", "first 4", "first 8"]
    for size in (2, 4, 8):
        cut = embeddings[:, :size] / np.linalg.norm(embeddings[:, :size], axis=1, keepdims=True)
        expected = recall_at_k(cut, labels, k=1)[1]
        assert sizes[f"first {size}"]["recall@1"] == pytest.approx(expected, abs=2e-3)
    alone = scores(OF_SIZES, "--dims", "4", name="evaluation_dims_4")
    assert "levels" not in alone
    assert alone["scores"]["recall@1"] == sizes["first 4"]["recall@1"]


def test_the_first_numbers_are_exported_alone(embeddings):
    export.main(["runs/cut", "--dims", "4"])
    exported = newest_version(pathlib.Path("saved_models/cut_dims_4"))
    assert read_metadata(exported)["dimension"] == 4
    images = tf.cast(pipelines.load("digits").test.images[:8], tf.float32)
    embed = tf.saved_model.load(str(exported)).signatures["embed_images"]
    expected = tf.math.l2_normalize(embeddings["cut"][:8, :4], axis=1)
    np.testing.assert_allclose(embed(images=images)["embedding"], expected, atol=1e-6)
    assert list(scores("saved_models/cut_dims_4")["levels"]) == ["first 2", "first 4"]


@pytest.mark.parametrize(
    ("program", "arguments", "message"),
    [
        (export, "missing", "no SavedModel at missing: expected saved_model.pb or folders"),
        (export, "runs/small --levels 4", "`levels` must be from 1 to 3. Received: levels=4"),
        (export, "runs/small --levels 0", "`levels` must be from 1 to 3. Received: levels=0"),
        (export, "runs/cut --dims 9", "`dims` must not exceed the embedding"),
        (evaluate, f"{OF_SIZES} --dims 9", "`dims` must not exceed the embedding"),
        (evaluate, f"{OF_SIZES} --dims 0", "`dims` must be an integer > 0"),
        (evaluate, f"{OF_LEVELS} --dims 2", "a model of one level"),
        (evaluate, f"{OF_LEVELS} --level_weights [1,2]", "one number for each level of a model"),
    ],
)
def test_rejects_levels_and_sizes_that_there_are_not(program, arguments, message, trained):
    assert message in programs.run(program.main, *arguments.split(), cwd=trained).sentence
