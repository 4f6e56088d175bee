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


def test_a_table_of_a_folder_is_made_and_not_made_twice(tmp_path):
    folder = tmp_path / "small" / "digits"
    folder.mkdir(parents=True)
    settings = "dataset: digits\nclasses_per_batch: 5\nembedding_dim: 4\nsteps: 2\n"
    settings += "checkpoint_every: 1\n"
    (folder / "lifted.yaml").write_text(f"loss: lifted\n{settings}")
    (folder / "pddm.yaml").write_text(f"loss: pddm\n{settings}")
    command = [
        sys.executable,
        ROOT / "recipes" / "run.py",
        folder,
        "--seeds",
        "0",
        "--jobs",
        "2",
        "--",
    ]
    command += ["--", "--learning_rate", "1e-4"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def rerun():
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True
        )

    first = rerun()
    assert first.returncode == 0, first.stderr[-2000:]
    rows = (tmp_path / "runs" / "small_digits" / "table.md").read_text().splitlines()[2:]
    assert [row.split(" | ")[:2] for row in rows] == [
        ["| lifted", "distance"],
        ["| pddm", "distance"],
        ["| pddm", "similarity"],
    ]
    scores = json.loads((tmp_path / "runs" / "small_digits_pddm_0" / "scores.json").read_text())
    assert f"| {100 * scores['trained']['recall@1']:.1f} ± 0.0 |" in rows[1]
    assert not list((tmp_path / "runs").glob("*.log"))
    assert (tmp_path / "runs" / "small_digits" / "curves.png").stat().st_size > 0
    version = tmp_path / "saved_models" / "small_digits_pddm_0" / "1"
    written = version.stat().st_mtime
    assert rerun().returncode == 0
    assert version.stat().st_mtime == written
