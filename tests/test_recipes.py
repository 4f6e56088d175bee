"""train.py takes every recipe, and recipes/run.py makes a table of a folder of them."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

import train

ROOT = pathlib.Path(__file__).parents[1]
RECIPES = sorted((ROOT / "recipes").rglob("*.yaml"))


def test_there_are_recipes():
    assert len(RECIPES) >= 9


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: "-".join(path.parts[-2:]))
def test_train_takes_every_recipe(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe, resume, _ = train.parse(["--config", str(path)])
    train.check_settings(recipe)
    assert not resume


def rerun(folder, *arguments, cwd):
    command = [sys.executable, ROOT / "recipes" / "run.py", folder, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)


SETTINGS = (
    "dataset: digits\nclasses_per_batch: 5\nembedding_dim: 4\nsteps: 2\ncheckpoint_every: 1\n"
)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "small" / "digits"
    folder.mkdir(parents=True)
    (folder / "lifted.yaml").write_text(f"loss: lifted\n{SETTINGS}")
    return folder


def test_a_table_of_a_folder_is_made_and_not_made_twice(folder, tmp_path):
    (folder / "pddm.yaml").write_text(f"loss: pddm\n{SETTINGS}")
    arguments = ["--seeds", "0", "--jobs", "2", "--", "--learning_rate", "1e-4"]
    first = rerun(folder, *arguments, cwd=tmp_path)
    assert first.returncode == 0, first.stderr[-2000:]
    lines = (tmp_path / "runs" / "small_digits" / "table.md").read_text().splitlines()
    assert lines[0] == "Of the test classes."
    assert [row.split(" | ")[:2] for row in lines[4:]] == [
        ["| lifted", "distance"],
        ["| pddm", "distance"],
        ["| pddm", "similarity"],
    ]
    scores = json.loads((tmp_path / "runs" / "small_digits_pddm_0" / "scores.json").read_text())
    assert f"| {100 * scores['trained']['recall@1']:.1f} ± 0.0 |" in lines[5]
    assert not list((tmp_path / "runs").glob("*.log"))
    assert (tmp_path / "runs" / "small_digits" / "curves.png").stat().st_size > 0
    version = tmp_path / "saved_models" / "small_digits_pddm_0" / "1"
    written = version.stat().st_mtime
    assert rerun(folder, *arguments, cwd=tmp_path).returncode == 0
    assert version.stat().st_mtime == written
    more = rerun(folder, "--nmi", "--train_classes", *arguments, cwd=tmp_path)
    assert more.returncode == 0, more.stderr[-2000:]
    assert version.stat().st_mtime == written
    heads, _, *rows = more.stdout.split("| recipe |")[1].splitlines()
    values = dict(zip(heads.split(" | ")[1:], rows[0].split(" | ")[2:], strict=False))
    run = tmp_path / "runs" / "small_digits_lifted_0"
    for column, file, name in (
        ("NMI", "distance", "nmi"),
        ("train recall@1", "train_classes", "recall@1"),
    ):
        score = json.loads((run / f"{file}.json").read_text())["scores"][name]
        assert values[column] == f"{100 * score:.1f} ± 0.0"
    assert json.loads((run / "train_classes.json").read_text())["split"] == "train"
    changed = rerun(folder, *arguments[:-1], "1e-3", cwd=tmp_path)
    assert changed.returncode == 2
    assert "--learning_rate differs from the run's: 0.001, was 0.0001" in changed.stderr


def test_a_table_of_held_out_classes_says_so(folder, tmp_path):
    (folder / "lifted.yaml").write_text(f"loss: pddm\n{SETTINGS}validation_share: 0.4\n")
    arguments = ["--seeds", "0", "--", "--classes_per_batch", "3"]
    result = rerun(folder, *arguments, cwd=tmp_path)
    assert result.returncode == 0, result.stderr[-2000:]
    table = (tmp_path / "runs" / "small_digits" / "table.md").read_text()
    assert table.startswith("Of the validation classes.\n")
    learned = tmp_path / "runs" / "small_digits_lifted_0" / "similarity.json"
    assert json.loads(learned.read_text())["split"] == "validation"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing"], "run.py: error: no recipes, *.yaml, in missing"),
        (["small/digits", "--jobs", "0"], "--jobs must be >= 1. Received: 0"),
        (["small/digits", "--seeds", "1", "1"], "--seeds must differ. Received: [1, 1]"),
        (["small/digits", "--", "--run", "x"], "--run cannot stand behind --"),
        (["small/digits", "--", "--stpes", "3"], "Did you mean --steps?"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_runs(arguments, message, folder, tmp_path):
    result = rerun(*arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert message in result.stderr
    assert not (tmp_path / "runs").exists()


def test_a_run_that_fails_is_named(folder, tmp_path):
    result = rerun(folder, "--seeds", "0", "--", "--classes_per_batch", "6", cwd=tmp_path)
    assert result.returncode == 2
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith(
        "run.py: error: train.py of small_digits_lifted_0 ended with 2: train.py:"
    )
    assert "`classes_per_batch` must not exceed the number of training classes" in last
