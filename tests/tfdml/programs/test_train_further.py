"""A run with the defaults, trained further, and another that starts from it."""

import json
import shutil
import zipfile

import keras
import numpy as np
import programs
import pytest
import yaml
from small_runs import run, write_images

import pipelines
from tfdml import serving
from tfdml.programs import train
from tfdml.runs.folders import RUNS, make_folders, only_writer

SMALL = ["--dataset", "digits", "--loss", "triplet", "--embedding_dim", "4"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder in which run `a` was trained for 5 steps, in intervals of 2."""
    folder = tmp_path_factory.mktemp("first")
    arguments = [*SMALL, "--steps", "5", "--checkpoint_every", "2", "--run", "a"]
    result = programs.run(train.main, *arguments, cwd=folder)
    assert result.code == 0, result.err
    return folder, result


def settings_of(folder, run):
    return yaml.safe_load((folder / "runs" / run / "config.yaml").read_text())


def steps_of(folder, run):
    model = keras.models.load_model(folder / "runs" / run / "checkpoint.keras")
    return int(model.optimizer.iterations)


def test_a_run_prints_and_keeps_its_defaults_and_states_whether_it_improved(folder):
    folder, result = folder
    assert "--classes_per_batch 5, all training classes" in result.out
    settings = settings_of(folder, "a")
    assert (settings["learning_rate"], settings["classes_per_batch"]) == (1e-4, 5)
    assert steps_of(folder, "a") == 5  # the last interval is short
    assert len((folder / "runs/a/logs/epochs.csv").read_text().splitlines()) == 1 + 3
    assert "step 5 of 5" in result.out
    scores = json.loads((folder / "runs/a/scores.json").read_text())
    recalls = [scores[stage]["recall@1"] for stage in ("untrained", "trained")]
    assert scores["improved"] == (recalls[1] > recalls[0])


def test_a_finished_run_is_trained_further(folder):
    folder, _ = folder
    before = json.loads((folder / "runs/a/scores.json").read_text())
    result = programs.run(train.main, "--run", "a", "--resume", cwd=folder)
    assert "is complete" in result.sentence
    assert "--steps" in result.sentence
    result = programs.run(train.main, "--run", "a", "--resume", "--steps", "8", cwd=folder)
    assert result.code == 0, result.err
    assert steps_of(folder, "a") == 8
    assert settings_of(folder, "a")["steps"] == 8
    assert {path.name for path in (folder / "saved_models/a").iterdir()} == {"1", "2"}
    after = json.loads((folder / "runs/a/scores.json").read_text())
    assert after["untrained"] == before["untrained"]
    assert after["trained"] != before["trained"]
    result = programs.run(train.main, "--run", "a", "--resume", "--steps", "6", cwd=folder)
    assert "--steps differs" in result.sentence


def test_a_run_has_one_writer(folder):
    folder, _ = folder
    with only_writer(folder / "runs" / "a"):
        result = programs.run(train.main, "--run", "a", "--resume", "--steps", "9", cwd=folder)
    assert "another process is training run 'a'" in result.sentence
    assert not (folder / "runs/a/.lock").stat().st_size


def test_a_run_that_another_process_has_just_begun_is_not_overwritten(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_folders(RUNS / "x", {"config.yaml": "steps: 1"})
    with pytest.raises(OSError, match="not empty"):
        make_folders(RUNS / "x", {"config.yaml": "steps: 2"})
    assert (tmp_path / "runs/x/config.yaml").read_text() == "steps: 1"
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["x"]


def test_a_run_starts_from_the_weights_of_another(folder, monkeypatch):
    folder, _ = folder
    models = []
    monkeypatch.setattr(train, "export", lambda run, scores: models.append(run.model))
    run(*SMALL, "--init_from", "a", "--steps", "0", "--run", "b", cwd=folder)
    source = keras.models.load_model(folder / "runs/a/checkpoint.keras")
    images = pipelines.load("digits").test.images[:8]
    np.testing.assert_allclose(models[0].embed(images), source.embed(images), atol=1e-6)


@pytest.mark.slow  # three trainings; evaluate.py warns of trained classes in the same way
def test_a_run_from_another_knows_its_classes_and_goes_on_without_it(tmp_path, monkeypatch):
    exported = []
    monkeypatch.setattr(
        serving, "export_model", lambda *_, metadata, **__: exported.append(metadata)
    )
    photos = write_images(tmp_path / "photos", dict.fromkeys(("a", "b", "c", "d"), 2))
    small = ["--dataset", "folder", "--data_dir", photos, "--image_size", "8"]
    small += ["--loss", "triplet", "--embedding_dim", "4", "--steps", "1"]
    run(*small, "--run", "first", cwd=tmp_path)
    write_images(photos, {"aa": 2, "ab": 2})  # now b is a class to score
    start = ["--run", "second", "--init_from", "first"]
    second = programs.run(train.main, *small, *start, cwd=tmp_path)
    shutil.rmtree(tmp_path / "runs" / "first")
    go_on = ["--run", "second", "--resume", "--steps", "2"]
    third = programs.run(train.main, *go_on, cwd=tmp_path)
    for result, metadata in zip((second, third), exported[1:], strict=True):
        assert result.code == 0, result.err
        assert "1 of the 3 scored classes were trained on, such as b" in result.err
        assert metadata["trained_classes"] == ["a", "aa", "ab", "b"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--init_from", "missing"], "`init_from` must be a run with a checkpoint"),
        (["--init_from", "a", "--weights", "imagenet"], "`weights` and `init_from`"),
        (["--init_from", "a", "--embedding_dim", "8"], "its embeddings have 4 numbers"),
        (["--init_from", "a", "--image_size", "32"], "its images are 8×8×1"),
        (["--init_from", "runs/a/adapters.npz"], "adapters, .npz, are for `tune` lora. Received"),
        (["--init_from", "runs/a/scores.json"], "`init_from` must be a run with a checkpoint"),
    ],
)
def test_rejects_a_start_that_does_not_fit(arguments, message, folder):
    result = programs.run(train.main, *SMALL, "--run", "c", *arguments, cwd=folder[0])
    assert message in result.sentence
    assert not (folder[0] / "runs" / "c").exists()


def test_rejects_a_start_with_a_broken_file(tmp_path):
    run = tmp_path / "runs" / "a"
    run.mkdir(parents=True)
    with zipfile.ZipFile(run / "checkpoint.keras", "w"):
        pass
    (run / "config.yaml").write_text("dataset: digits")
    (run / "trained_classes.json").write_text("5")
    result = programs.run(train.main, *SMALL, "--init_from", "a", "--run", "c", cwd=tmp_path)
    assert "trained_classes.json must be a list of texts, as JSON" in result.sentence
    assert not (tmp_path / "runs" / "c").exists()
