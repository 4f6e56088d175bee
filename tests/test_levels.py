"""A run of several levels: trained, each level scored, and the shallow ones exported alone."""

import json
import pathlib

import keras
import numpy as np
import programs
import pytest
import tensorflow as tf

import pipelines
from tfdml.evaluation import distance_statistics, recall_at_k, split_levels
from tfdml.programs import evaluate, train
from tfdml.runs.network import build_model
from tfdml.runs.prepared import check_model
from tfdml.serving import export
from tfdml.serving.metadata import read_metadata
from tfdml.serving.versions import newest_version

pytestmark = pytest.mark.usefixtures("without_xla", "loaded_once", "few_digits")

ROOT = pathlib.Path(__file__).parents[1]
SMALL = ["--dataset", "digits", "--loss", "hdc", "--embedding_dim", "4"]
SMALL += ["--classes_per_batch", "5", "--steps", "2", "--checkpoint_every", "2"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder in which a small run was trained."""
    folder = tmp_path_factory.mktemp("levels")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        train.main(["--run", "small", *SMALL])
    return folder


@pytest.fixture(scope="module")
def embeddings(trained):
    model = keras.models.load_model(trained / "runs" / "small" / "checkpoint.keras")
    return model.embed(pipelines.load("digits").test.images)


@pytest.fixture
def here(trained, tmp_path, monkeypatch):
    """An empty working folder from which the run is read."""
    monkeypatch.chdir(tmp_path)
    return trained


def scores(folder, *arguments, name="evaluation"):
    evaluate.main([str(folder), "--nmi", "false", "--k", "1", *arguments])
    return json.loads(pathlib.Path("runs", folder.name, f"{name}.json").read_text())


def test_each_level_is_scored_alone_and_all_together(here, embeddings, capsys):
    labels = pipelines.load("digits").test.labels
    content = scores(here / "saved_models" / "small")
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


def test_levels_are_weighed(here):
    content = scores(
        here / "saved_models" / "small",
        *("--level_weights", "[0, 0, 2.5]"),
        name="evaluation_weights_0_0_2.5",
    )
    deepest = content["levels"]["level 3"]
    assert content["scores"]["recall@1"] == pytest.approx(deepest["recall@1"], abs=2e-3)
    assert content["distances"]["lda"] == pytest.approx(deepest["lda"], rel=1e-4)


def test_shallow_levels_are_exported_alone(here, embeddings):
    out = pathlib.Path("shallow")
    export.main([str(here / "runs" / "small"), "--levels", "2", "--out", str(out)])
    images = pipelines.load("digits").test.images[:20]
    embed = tf.saved_model.load("shallow/1").signatures["embed_images"]
    shallow = embed(images=tf.constant(images, tf.float32))["embedding"]
    np.testing.assert_allclose(shallow, embeddings[:20, :8], atol=1e-6)
    assert size_of(out / "1") < size_of(here / "saved_models" / "small" / "1")
    assert set(scores(out)["levels"]) == {"level 1", "level 2"}


def size_of(folder):
    return sum(path.stat().st_size for path in (folder / "variables").iterdir())


def test_a_whole_run_is_exported_again_beside_the_first(trained, monkeypatch, capsys):
    monkeypatch.chdir(trained)
    export.main(["runs/small"])
    printed = capsys.readouterr().out
    assert printed.startswith("saved_models/small/2: ")
    assert printed.count(" MB\n") == 2
    content = tf.io.encode_png(tf.zeros((8, 8, 1), tf.uint8))[None]
    first, again = (
        tf.saved_model.load(f"saved_models/small/{version}").signatures["serving_default"](content)
        for version in (1, 2)
    )
    np.testing.assert_allclose(first["embedding"], again["embedding"], atol=1e-6)
    stated = [read_metadata(pathlib.Path(f"saved_models/small/{version}")) for version in (1, 2)]
    assert stated[0].pop("fingerprint") != stated[1].pop("fingerprint")
    assert stated[0] == stated[1]
    assert stated[0]["scores"]["trained"].keys() >= {"recall@1"}


def test_another_loss_may_train_all_levels_as_one():
    recipe, *_ = train.parse(["--loss", "contrastive", "--levels", "3", "--run", "unused"])
    check_model(recipe)
    dataset = pipelines.load("digits")
    recipe, _ = recipe.completed(5)
    assert build_model(recipe, dataset.train, dataset).embedder.output_shape == (None, 384)


@pytest.fixture(scope="module")
def matryoshka(tmp_path_factory):
    """The folder in which a small run of embeddings that can be cut short was trained."""
    folder = tmp_path_factory.mktemp("matryoshka")
    flags = ["--dataset", "digits", "--embedding_dim", "8", "--classes_per_batch", "5"]
    flags += ["--loss", "matryoshka", "--loss_options.base", "npair"]
    flags += ["--loss_options.dims", "[8, 4, 2]", "--steps", "2", "--checkpoint_every", "2"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        train.main(["--run", "cut", *flags])
    return folder


def test_every_size_of_a_matryoshka_run_is_scored_and_one_alone(matryoshka, here):
    digits, model = pipelines.load("digits").test, matryoshka / "saved_models" / "cut"
    whole = keras.models.load_model(matryoshka / "runs" / "cut" / "checkpoint.keras")
    embeddings = whole.embed(digits.images)
    sizes = scores(model)["levels"]
    assert list(sizes) == ["first 2", "first 4", "first 8"]
    for size in (2, 4, 8):
        cut = embeddings[:, :size] / np.linalg.norm(embeddings[:, :size], axis=1, keepdims=True)
        expected = recall_at_k(cut, digits.labels, k=1)[1]
        assert sizes[f"first {size}"]["recall@1"] == pytest.approx(expected, abs=2e-3)
    alone = scores(model, "--dims", "4", name="evaluation_dims_4")
    assert "levels" not in alone
    assert alone["scores"]["recall@1"] == sizes["first 4"]["recall@1"]


def test_the_first_numbers_are_exported_alone(matryoshka, here):
    export.main([str(matryoshka / "runs" / "cut"), "--dims", "4"])
    exported = newest_version(matryoshka / "saved_models" / "cut_dims_4")
    assert read_metadata(exported)["dimension"] == 4
    images = tf.cast(pipelines.load("digits").test.images[:8], tf.float32)
    short, long = (
        tf.saved_model.load(str(path)).signatures["embed_images"](images=images)["embedding"]
        for path in (exported, newest_version(matryoshka / "saved_models" / "cut"))
    )
    np.testing.assert_allclose(short, tf.math.l2_normalize(long[:, :4], axis=1), atol=1e-6)
    assert list(scores(exported.parent)["levels"]) == ["first 2", "first 4"]


OF_LEVELS, OF_SIZES = "saved_models/small", "saved_models/cut"  # of the runs above


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
def test_rejects_levels_and_sizes_that_there_are_not(
    program, arguments, message, trained, matryoshka
):
    folder = matryoshka if "cut" in arguments else trained
    assert message in programs.run(program.main, *arguments.split(), cwd=folder).sentence
