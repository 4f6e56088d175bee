"""What a run of the program leaves, of several kinds of images."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
import yaml
from small_runs import SMALL, TWO_STEPS, run, scores_of, write_images

import pipelines
import tfdml
from tfdml.evaluation import recall_at_k
from tfdml.programs import train


def test_a_run_improves_the_retrieval_of_unseen_classes(finished):
    folder, printed = finished
    scores = scores_of(folder / "runs" / "small")
    gain = scores["trained"]["recall@1"] - scores["untrained"]["recall@1"]
    assert gain > 0.03  # -0.05 by the statistics of batch normalization alone
    assert "triplet, 60 steps in " in printed
    assert scores["untrained"]["recall@1"] > 0.3
    for stage in ("untrained", "trained"):
        assert f"{scores[stage]['recall@1']:.4f}" in printed


def test_a_run_leaves_what_the_readme_says(finished):
    folder, _ = finished
    written = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    for name in ("config.yaml", "checkpoint.keras", "scores.json", "training.png"):
        assert f"runs/small/{name}" in written
    assert any("tfevents" in name for name in written)
    assert "saved_models/small/1/saved_model.pb" in written
    assert not [name for name in written if "unfinished" in name]
    lines = (folder / "runs" / "small" / "logs" / "epochs.csv").read_text().splitlines()
    assert len(lines) == 1 + 3
    settings = yaml.safe_load((folder / "runs" / "small" / "config.yaml").read_text())
    assert settings["loss"] == "triplet"
    assert settings["loss_options"]["margin"] == 1.0  # the default
    assert settings["steps"] == 60


@pytest.fixture(scope="module")
def photo_run(tmp_path_factory):
    """A folder with images, and a run on them under a name of its own."""
    folder = tmp_path_factory.mktemp("photos")
    photos = write_images(folder / "photos", dict.fromkeys("abcd", 2))
    data = ["--dataset", "folder", "--data_dir", photos, "--image_size", "16"]
    arguments = ["--loss", "npair", "--classes_per_batch", "2", *data, *TWO_STEPS]
    run(*arguments, cwd=folder)
    return folder, [str(argument) for argument in arguments]


def test_trains_on_a_folder_of_images_and_serves_their_bytes(photo_run):
    folder, _ = photo_run
    version = folder / "saved_models" / "folder_npair" / "1"
    serve = tf.saved_model.load(str(version)).signatures["serving_default"]
    contents = [(folder / "photos" / "d" / f"{number}.png").read_bytes() for number in range(2)]
    served = serve(image_bytes=tf.constant(contents))["embedding"].numpy()
    model = keras.models.load_model(folder / "runs" / "folder_npair" / "checkpoint.keras")
    last = pipelines.load("folder", data_dir=folder / "photos").test.subset(slice(-2, None))
    expected = model.embed(pipelines.evaluation_batches(last, (16, 16, 3)))
    np.testing.assert_allclose(served, expected, atol=1e-5)
    scores = scores_of(folder / "runs" / "folder_npair")  # by the neighbours that there are
    assert list(scores["trained"]) == list(scores["untrained"]) == ["recall@1", "recall@2"]


def test_a_second_run_of_a_name_gets_a_number(photo_run, monkeypatch):
    folder, arguments = photo_run
    monkeypatch.chdir(folder)
    assert train.parse(arguments)[0].run == "folder_npair_2"


def test_scores_queries_in_the_gallery_of_a_dataset(tmp_path, monkeypatch):
    digits = pipelines.load("digits")
    queries = np.arange(len(digits.test.labels)) % 4 == 0
    parts = {"test": digits.test.subset(queries), "gallery": digits.test.subset(~queries)}
    dataset, models = dataclasses.replace(digits, **parts), []
    monkeypatch.setattr(pipelines, "load", lambda *_, **__: dataset)
    monkeypatch.setattr(train, "export", lambda run, scores: models.append(run.model))
    run(*SMALL, "--steps", "0", "--run", "apart", cwd=tmp_path)
    rows, others = (models[0].embed(part.images) for part in parts.values())
    gallery = {"gallery_embeddings": others, "gallery_labels": parts["gallery"].labels}
    found = recall_at_k(rows, parts["test"].labels, k=1, **gallery)[1]
    reported = scores_of(tmp_path / "runs" / "apart")["untrained"]
    assert reported["recall@1"] == pytest.approx(found, abs=5e-3)


@pytest.mark.usefixtures("without_export")
def test_validation_classes_are_scored_and_hard_neighbours_refreshed(tmp_path, monkeypatch):
    steps, refresh = [], pipelines.HardNeighbours.refresh

    def noted(self, step, embeddings):
        steps.append(step)
        refresh(self, step, embeddings)

    monkeypatch.setattr(pipelines.HardNeighbours, "refresh", noted)
    options = ["--validation_share", "0.4", "--dataset", "digits", "--classes_per_batch", "3"]
    options += ["--sampler", "pairs", "--sampler_options.hard_neighbours", "true"]
    printed = run(*options, *TWO_STEPS, "--run", "x", cwd=tmp_path)
    run("--run", "x", "--resume", "--steps", "3", cwd=tmp_path)
    assert steps == [0, 1, 2]
    assert "of 3 classes to train" in printed
    assert "Unseen validation classes" in printed
    assert scores_of(tmp_path / "runs" / "x")["scored_classes"] == "validation"
    log = (tmp_path / "runs" / "x" / "logs" / "epochs.csv").read_text()
    assert "val_recall@1" in log.splitlines()[0]


def test_no_steps_score_and_export_the_features_as_they_are(exported_run):
    scores = scores_of(exported_run / "runs" / "small")
    assert "trained" not in scores
    assert scores["train_seconds"] == 0
    model = tf.saved_model.load(str(exported_run / "saved_models" / "small" / "1"))
    digits = pipelines.load("digits").test
    embed = model.signatures["embed_images"]
    features = embed(images=tf.constant(digits.images, tf.float32))["embedding"].numpy()
    backbone = tfdml.models.build_embedder(
        "small_cnn", None, input_shape=digits.images.shape[1:], normalize=False
    )
    assert features.shape[1] == backbone.output_shape[1]
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, atol=1e-5)
    found = recall_at_k(features, digits.labels)[1]
    assert scores["untrained"]["recall@1"] == pytest.approx(found, abs=2e-3)


def test_a_set_of_tfds_names_its_run():
    recipe, *_ = train.parse(["--dataset", "tfds:mnist:3.0.1"])
    assert (recipe.dataset, recipe.run) == ("tfds:mnist:3.0.1", "tfds_mnist_3.0.1_lifted")
