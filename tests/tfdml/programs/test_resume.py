"""How a run goes on after a stop."""

import dataclasses
import json
import shutil

import pytest
import yaml
from small_runs import (
    SMALL,
    TWO_STEPS,
    rejection,
    run,
    scores_of,
    write_images,
)

from tfdml.runs.recipe_flags import parse
from tfdml.runs.watching import _drop_rows


@pytest.mark.usefixtures("without_export")
def test_a_run_killed_before_its_first_checkpoint_resumes(tmp_path):
    folder = tmp_path / "runs" / "x"
    recipe, *_ = parse(["--run", "x", *SMALL, *TWO_STEPS])
    (folder / "logs").mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(dataclasses.asdict(recipe)))
    run("--run", "x", "--resume", cwd=tmp_path)
    assert scores_of(folder)["train_seconds_from_step"] == 0


@pytest.fixture
def killed(finished, tmp_path):
    """A folder in which that run has no export; its scores."""
    shutil.copytree(finished[0] / "runs", tmp_path / "runs")
    (tmp_path / "saved_models" / "small" / ".unfinished-1-x").mkdir(parents=True)
    return tmp_path, tmp_path / "runs" / "small" / "scores.json"


def test_a_run_killed_in_its_export_resumes(killed):
    folder, path = killed
    scores = path.read_text()
    run("--run", "small", "--resume", cwd=folder)
    assert (folder / "saved_models" / "small" / "1" / "saved_model.pb").is_file()
    assert path.read_text() == scores


@pytest.mark.usefixtures("without_export")
def test_a_run_killed_in_its_last_scoring_scores_again(killed):
    folder, path = killed
    scores = json.loads(path.read_text())
    before = {**scores, "steps": scores["steps"] - 1, "trained": {"recall@1": 0.125}}
    path.write_text(json.dumps(before))  # of a shorter training
    run("--run", "small", "--resume", cwd=folder)
    assert json.loads(path.read_text())["trained"] == scores["trained"]


def test_resume_takes_the_file_that_the_run_was_started_with(tmp_path, monkeypatch):
    folder, file = tmp_path / "runs" / "x", tmp_path / "file.yaml"
    folder.mkdir(parents=True)
    settings = {"dataset": "digits", "loss": "ntxent", "run": "x"}
    saved = {**settings, "loss_options": {"temperature": 0.1, "margin": 0.0, "normalize": True}}
    (folder / "config.yaml").write_text(yaml.safe_dump(saved))
    go_on = "--config", str(file), "--run", "x", "--resume"
    file.write_text("loss: ntxent\nloss_options: {temperature: 0.1}\n")
    monkeypatch.chdir(tmp_path)
    recipe, *_ = parse(go_on)
    assert recipe.loss_options == saved["loss_options"]
    for other in ("temperature: 0.2", "temperature: 0.1, normalize: false"):
        file.write_text(f"loss: ntxent\nloss_options: {{{other}}}\n")
        message = rejection(*go_on, cwd=tmp_path)
        assert "--loss_options differs from the run's" in message


def test_what_is_not_the_run_is_rejected(finished, tmp_path):
    folder = finished[0]
    message = rejection("--run", "small", "--resume", "--seed", "1", cwd=folder)
    assert "--seed differs from the run's: 1, was 2" in message
    message = rejection("--run", "small", *SMALL, cwd=folder)
    assert "run 'small' exists. Choose another --run, or go on with --resume" in message
    assert "--resume needs --run NAME" in rejection("--resume", cwd=tmp_path)


@pytest.mark.usefixtures("without_export")
def test_a_run_without_new_layers_resumes_and_logs_each_interval_once(tmp_path):
    given = ["--run", "x", "--head_steps", "1"]
    run(*given, *SMALL, *TWO_STEPS, "--embedding_dim", "null", "--loss", "triplet", cwd=tmp_path)
    log = tmp_path / "runs" / "x" / "logs" / "epochs.csv"
    *_, last = lines = log.read_text().splitlines()
    _, _, values = last.partition(",")
    log.write_text("\n".join([*lines, f"{len(lines) - 1},{values}"]) + "\n")  # then it was killed
    printed = run(*given, "--resume", "--steps", "3", cwd=tmp_path)
    assert "triplet, 3 steps, the last 1 in " in printed
    rows = log.read_text().splitlines()
    assert rows[: len(lines)] == lines
    assert [row.partition(",")[0] for row in rows[len(lines) :]] == [str(len(lines) - 1)]


@pytest.mark.usefixtures("without_export")
def test_resume_rejects_other_images_than_those_of_the_run(tmp_path):
    photos = write_images(tmp_path / "photos", dict.fromkeys("bcde", 2))
    data = ["--dataset", "folder", "--data_dir", photos, "--image_size", "16", "--run", "x"]
    table = tmp_path / "labels.csv"
    table.write_text("path,label\ne/0.png,e\n")
    run(*data, "--relabel", table, "--classes_per_batch", "2", "--steps", "0", cwd=tmp_path)
    resume = ["--run", "x", "--resume", "--steps", "3"]
    for name, use in (("b", "training"), ("e", "scored")):
        new = shutil.copy(photos / name / "0.png", photos / name / "new.png")
        message = rejection(*resume, cwd=tmp_path)
        assert "must be those that runs/x began with: restore them" in message
        assert message.endswith(f"Received: classes=2, {use}_images=5")
        new.unlink()
    assert "steps: 0\n" in (tmp_path / "runs" / "x" / "config.yaml").read_text()
    table.write_text("path,label\ne/1.png,e\n")
    assert "Received: classes=2, corrections=" in rejection(*resume, cwd=tmp_path)
    write_images(photos, {"a": 2})
    message = rejection(*resume, cwd=tmp_path)
    assert "must be those that runs/x began with" in message


def test_a_log_with_the_empty_lines_of_windows_loses_its_last_rows(tmp_path):
    (tmp_path / "epochs.csv").write_bytes(b"epoch,loss\r\r\n0,0.5\r\r\n1,0.4\r\r\n")
    _drop_rows(tmp_path / "epochs.csv", 1)
    assert (tmp_path / "epochs.csv").read_text() == "epoch,loss\n0,0.5\n"
