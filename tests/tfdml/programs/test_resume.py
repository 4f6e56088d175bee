"""How a run goes on after a stop."""

import dataclasses
import json
import shutil
import zipfile

import keras
import numpy as np
import programs
import pytest
import tensorflow as tf
import yaml
from small_runs import (
    SMALL,
    TWO_STEPS,
    completed,
    rejection,
    run,
    scores_of,
    small_dataset,
    write_images,
)

from tfdml.programs import train
from tfdml.runs.checkpoints import load_checkpoint
from tfdml.runs.devices import Devices
from tfdml.runs.images import Images


def test_a_run_killed_before_its_first_checkpoint_resumes(tmp_path):
    folder = tmp_path / "runs" / "x"
    recipe, *_ = train.parse(["--run", "x", *SMALL, *TWO_STEPS])
    (folder / "logs").mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(dataclasses.asdict(recipe)))
    run("--run", "x", "--resume", cwd=tmp_path)
    assert scores_of(folder)["train_seconds_from_step"] == 0
    assert (tmp_path / "saved_models" / "x" / "1" / "saved_model.pb").is_file()


def test_a_run_killed_in_its_export_resumes(finished, tmp_path):
    shutil.copytree(finished[0] / "runs", tmp_path / "runs")
    (tmp_path / "saved_models" / "small" / ".unfinished-1-x").mkdir(parents=True)
    scores = (tmp_path / "runs" / "small" / "scores.json").read_text()
    run("--run", "small", "--resume", cwd=tmp_path)
    assert [path.name for path in (tmp_path / "saved_models" / "small").iterdir()] == ["1"]
    assert (tmp_path / "runs" / "small" / "scores.json").read_text() == scores


def test_a_run_killed_in_its_last_scoring_scores_again(finished, tmp_path):
    shutil.copytree(finished[0] / "runs", tmp_path / "runs")
    path = tmp_path / "runs" / "small" / "scores.json"
    scores = json.loads(path.read_text())
    before = {**scores, "steps": scores["steps"] - 1, "trained": {"recall@1": 0.125}}
    path.write_text(json.dumps(before))  # of a shorter training
    run("--run", "small", "--resume", cwd=tmp_path)
    assert json.loads(path.read_text())["trained"] == scores["trained"]


def test_resume_rejects_other_settings(finished):
    message = rejection("--run", "small", "--resume", "--seed", "1", cwd=finished[0])
    assert "--seed differs from the run's: 1, was 2" in message


def test_resume_takes_the_file_that_the_run_was_started_with(tmp_path, monkeypatch):
    folder, file = tmp_path / "runs" / "x", tmp_path / "file.yaml"
    folder.mkdir(parents=True)
    settings = {"dataset": "digits", "loss": "ntxent", "run": "x"}
    saved = {**settings, "loss_options": {"temperature": 0.1, "margin": 0.0, "normalize": True}}
    (folder / "config.yaml").write_text(yaml.safe_dump(saved))
    go_on = "--config", str(file), "--run", "x", "--resume"
    file.write_text("loss: ntxent\nloss_options: {temperature: 0.1}\n")
    monkeypatch.chdir(tmp_path)
    recipe, *_ = train.parse(go_on)
    assert recipe.loss_options == saved["loss_options"]
    for other in ("temperature: 0.2", "temperature: 0.1, normalize: false"):
        file.write_text(f"loss: ntxent\nloss_options: {{{other}}}\n")
        message = rejection(*go_on, cwd=tmp_path)
        assert "--loss_options differs from the run's" in message


def test_a_run_that_exists_is_rejected(finished):
    message = rejection("--run", "small", *SMALL, cwd=finished[0])
    assert "run 'small' exists" in message
    assert "--resume" in message


@pytest.mark.usefixtures("without_export")
def test_a_run_without_new_layers_resumes_and_logs_each_interval_once(tmp_path):
    given = ["--run", "x", "--head_steps", "1"]
    run(*given, *SMALL, *TWO_STEPS, "--embedding_dim", "null", "--loss", "triplet", cwd=tmp_path)
    log = tmp_path / "runs" / "x" / "logs" / "epochs.csv"
    *_, last = lines = log.read_text().splitlines()
    _, _, values = last.partition(",")
    log.write_text("\n".join([*lines, f"{len(lines) - 1},{values}"]) + "\n")  # then it was killed
    run(*given, "--resume", "--steps", "3", cwd=tmp_path)
    rows = log.read_text().splitlines()
    assert rows[: len(lines)] == lines
    assert [row.partition(",")[0] for row in rows[len(lines) :]] == [str(len(lines) - 1)]
    printed = run(*given, "--resume", "--steps", "4", cwd=tmp_path)
    assert "triplet, 4 steps, the last 1 in " in printed


def test_resume_rejects_a_broken_checkpoint(tmp_path):
    folder = tmp_path / "runs" / "x"
    (folder / "logs").mkdir(parents=True)
    (folder / "config.yaml").write_text("dataset: digits\nclasses_per_batch: 5\nrun: x\n")
    (folder / "checkpoint.keras").write_bytes(b"half a file")
    message = rejection("--run", "x", "--resume", cwd=tmp_path)
    assert "checkpoint.keras cannot be read" in message
    assert "start over" in message


def test_a_checkpoint_that_may_be_intact_is_not_to_be_deleted(tmp_path):
    with zipfile.ZipFile(tmp_path / "checkpoint.keras", "w") as archive:
        archive.writestr("config.json", "{}")
    with pytest.raises(ValueError, match="cannot be read") as error:
        load_checkpoint(completed(), tmp_path)
    assert "start over" not in str(error.value)


@pytest.mark.parametrize("name", ["38e7411", "#7"])
def test_a_run_resumes_whatever_its_name_is_in_yaml(name, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    write_images(tmp_path / name, dict.fromkeys("bcde", 2))

    def stopped(recipe, *_):
        assert (recipe.run, recipe.export_options) == (name, {"licence": name})
        assert recipe.data_dir == str(tmp_path / name)
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "build_model", lambda *_: None)
    monkeypatch.setattr(train, "training_batches", lambda *_: (None, []))
    monkeypatch.setattr(train, "fit", stopped)
    go_on = ["--run", name, "--export_options.licence", name, f"--data_dir=~/{name}"]
    data = ["--dataset", "folder", "--image_size", "16", "--classes_per_batch", "2"]
    for resume in ([*go_on, *data, *TWO_STEPS], [*go_on, "--resume"], ["--run", name, "--resume"]):
        assert programs.run(train.main, *resume, cwd=tmp_path).code == 130
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {name}
    assert not (tmp_path / "~").exists()


def test_resume_needs_a_run(tmp_path):
    assert "--resume needs --run NAME" in rejection("--resume", cwd=tmp_path)


def test_resume_rejects_other_classes_than_those_of_the_run(tmp_path, monkeypatch):
    photos = write_images(tmp_path / "photos", dict.fromkeys("bcde", 2))
    data = ["--dataset", "folder", "--data_dir", photos, "--image_size", "16", "--run", "x"]

    def stopped(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "build_model", lambda *_: None)
    monkeypatch.setattr(train, "fit", stopped)
    options = [*data, "--classes_per_batch", "2", *TWO_STEPS]
    assert programs.run(train.main, *options, cwd=tmp_path).code == 130
    write_images(photos, {"a": 2})
    message = rejection("--run", "x", "--resume", cwd=tmp_path)
    assert "the classes to train are not those that runs/x began with" in message


@pytest.mark.usefixtures("without_export")
def test_resume_rejects_other_images_than_those_of_the_run(tmp_path):
    photos = write_images(tmp_path / "photos", dict.fromkeys("bcde", 2))
    data = ["--dataset", "folder", "--data_dir", photos, "--image_size", "16", "--run", "x"]
    run(*data, "--classes_per_batch", "2", *TWO_STEPS, cwd=tmp_path)
    for name, use in (("b", "to train on"), ("e", "to score")):
        new = shutil.copy(photos / name / "0.png", photos / name / "new.png")
        message = rejection("--run", "x", "--resume", "--steps", "3", cwd=tmp_path)
        assert f"the images {use} are 5, where runs/x began with 4. Restore" in message
        new.unlink()
    assert "steps: 2\n" in (tmp_path / "runs" / "x" / "config.yaml").read_text()


def test_a_run_without_its_settings_can_only_be_deleted(tmp_path):
    (tmp_path / "saved_models" / "x").mkdir(parents=True)
    message = rejection("--run", "x", *SMALL, cwd=tmp_path)
    assert message.endswith("Choose another --run, or delete saved_models/x")


def test_hard_neighbours_are_those_of_the_checkpoint_when_a_run_resumes(tmp_path):
    dataset = small_dataset()
    recipe = completed(
        sampler="pairs",
        sampler_options={"hard_neighbours": True},
        classes_per_batch=4,
        images_per_class=2,
        steps=9,
        checkpoint_every=3,
    )

    def batches_of_fit(model, folder):
        (folder / "logs").mkdir(parents=True)
        seen = []

        def note(images):
            seen.append(images)
            return images

        def noted(images, labels):
            images = tf.ensure_shape(tf.numpy_function(note, [images], tf.float32), images.shape)
            return images, labels

        class KeepCheckpoints(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                shutil.copy(folder / "checkpoint.keras", folder / f"{epoch}.keras")

        step = int(model.optimizer.iterations)
        batches, callbacks = train.training_batches(recipe, step, dataset.train, dataset)
        callbacks = [*callbacks, KeepCheckpoints()]
        images = Images(dataset.train, *dataset.scored(), dataset)
        train.fit(recipe, folder, model, images, batches.map(noted), callbacks, Devices())
        return np.stack(seen)

    whole = batches_of_fit(train.build_model(recipe, dataset.train, dataset), tmp_path / "whole")
    assert len(whole) == 9
    stopped = keras.models.load_model(tmp_path / "whole" / "1.keras")
    resumed = batches_of_fit(stopped, tmp_path / "resumed")
    np.testing.assert_array_equal(resumed, whole[6:])


def test_a_log_with_the_empty_lines_of_windows_loses_its_last_rows(tmp_path):
    (tmp_path / "epochs.csv").write_bytes(b"epoch,loss\r\r\n0,0.5\r\r\n1,0.4\r\r\n")
    train.drop_rows(tmp_path / "epochs.csv", 1)
    assert (tmp_path / "epochs.csv").read_text() == "epoch,loss\n0,0.5\n"
