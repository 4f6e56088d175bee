"""train.py takes every recipe, and recipes/run.py makes a table of a folder of them."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

import programs
import pytest
from small_runs import SMALL_RECIPE

from tfdml.files import locked
from tfdml.programs import train

ROOT = pathlib.Path(__file__).parents[2]


def test_train_takes_every_recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parser, paths = train.parser_of_recipes(), sorted((ROOT / "recipes").rglob("*.yaml"))
    assert len(paths) >= 9
    for path in paths:
        recipe = parser.settings_of(parser.parse_args(["--config", str(path)]))
        train.check_names(parser, recipe)
        train.check_files(recipe)
        train.check_model(recipe)


@pytest.mark.slow  # but for the processes, the tests of tables below go the same way
def test_processes_make_a_table_of_held_out_classes(folder, tmp_path):
    with (folder / "lifted.yaml").open("a") as file:
        file.write("validation_share: 0.4\n")
    command = [sys.executable, ROOT / "recipes" / "run.py", folder, "--seeds", "0"]
    command += ["--", "--classes_per_batch", "3"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-2000:]
    table = (tmp_path / "runs" / "small_digits" / "table.md").read_text()
    assert table.startswith("Of the validation classes.\n")
    assert table in result.stdout
    scores = tmp_path / "runs" / "small_digits_lifted_0" / "distance.json"
    assert json.loads(scores.read_text())["split"] == "validation"
    assert not list((tmp_path / "runs").glob("*.log"))


def test_jobs_run_at_once(folder, table, tmp_path, monkeypatch):
    meeting = threading.Barrier(2)

    def meet(run, *_):
        meeting.wait(timeout=20)
        raise RuntimeError(f"{run} did not run alone")

    monkeypatch.setattr(table, "train_and_score", meet)
    monkeypatch.setattr(sys, "argv", ["run.py", str(folder), "--seeds", "0", "1", "--jobs", "2"])
    result = programs.run(lambda _: table.main(), cwd=tmp_path)
    for seed in (0, 1):
        assert f"small_digits_lifted_{seed} did not run alone" in result.err


@pytest.mark.usefixtures("_few_digits")
def test_a_table_of_a_folder_is_made_and_not_made_twice(folder, rerun, tmp_path):
    (folder / "pddm.yaml").write_text(f"loss: pddm\n{SMALL_RECIPE}")
    arguments = [folder, "--seeds", "0"]
    settings = ["--", "--learning_rate", "1e-4"]
    first = rerun(*arguments, *settings)
    assert first.code == 0, first.err
    lines = (tmp_path / "runs" / "small_digits" / "table.md").read_text().splitlines()
    assert lines[0] == "Of the test classes."
    assert [row.split(" | ")[:2] for row in lines[4:]] == [
        ["| lifted", "distance"],
        ["| pddm", "distance"],
        ["| pddm", "similarity"],
    ]
    scores = json.loads((tmp_path / "runs" / "small_digits_pddm_0" / "scores.json").read_text())
    assert f"| {100 * scores['trained']['recall@1']:.1f} |" in lines[5]
    assert not list((tmp_path / "runs").glob("*.log"))
    assert (tmp_path / "runs" / "small_digits" / "curves.png").stat().st_size > 0
    version = tmp_path / "saved_models" / "small_digits_pddm_0" / "1"
    written = version.stat().st_mtime
    assert rerun(*arguments, *settings).code == 0
    assert version.stat().st_mtime == written
    more = rerun(*arguments, "--k", "1", "16", "--nmi", "--train_classes", *settings)
    assert more.code == 0, more.err
    assert version.stat().st_mtime == written
    heads, _, *rows = more.out.split("| recipe |")[1].splitlines()
    values = dict(zip(heads.split(" | ")[1:], rows[0].split(" | ")[2:], strict=False))
    run = tmp_path / "runs" / "small_digits_lifted_0"
    for column, file, name in (
        ("recall@16", "distance", "recall@16"),
        ("NMI", "distance", "nmi"),
        ("F1", "distance", "f1"),
        ("train recall@1", "train_classes", "recall@1"),
    ):
        score = json.loads((run / f"{file}.json").read_text())["scores"][name]
        assert values[column] == f"{100 * score:.1f}"
    assert json.loads((run / "train_classes.json").read_text())["split"] == "train"
    changed = rerun(*arguments, "--", "--learning_rate", "1e-3")
    assert "--learning_rate differs from the run's: 0.001, was 0.0001" in changed.sentence
    longer = rerun(*arguments, *settings, "--steps", "3")
    assert "run small_digits_lifted_0 has 2 steps, not 3" in longer.sentence


@pytest.mark.usefixtures("_few_digits")
def test_scores_of_another_machine_are_not_made_again(folder, rerun, tmp_path):
    (folder / "lifted.yaml").write_text(f"loss: hdc\n{SMALL_RECIPE}")
    kept = tmp_path / "kept.csv"
    arguments = [folder, "--seeds", "0", "--scores", kept]
    first = rerun(*arguments, "--nmi")
    assert first.code == 0, first.err
    for place in ("runs", "saved_models"):
        shutil.rmtree(tmp_path / place)
    second = rerun(*arguments, "--nmi", "--", "--data_dir", "elsewhere")
    assert second.out.splitlines()[:8] == first.out.splitlines()[:8]
    assert not (tmp_path / "saved_models").exists()
    for changed in (["--level_weights", "1", "1", "2"], ["--", "--steps", "1"]):
        result = rerun(*arguments, *changed)
        assert "lifted with seed 0 are of other settings" in result.sentence
        assert not (tmp_path / "saved_models").exists()
    text = kept.read_text()
    kept.write_text(text.replace(",test,", ",test,distance,high,", 1))
    assert "kept.csv must have numbers as scores" in rerun(*arguments).sentence
    kept.write_text("recipe,seed\nlifted,0\n")
    assert "must have the columns" in rerun(*arguments).sentence


@pytest.mark.parametrize(
    ("loss", "levels"),
    [
        ("lifted", 1),
        ("hdc", 3),
        ("hdc\nlevels: 2", 2),
        ("density\nloss_options: {base: hdc}", 3),
        ("density\nloss_options: {base: {name: hdc}}", 3),
        ("density\nloss_options: {base: {name: triplet}}", 1),
    ],
)
def test_level_weights_are_of_recipes_with_as_many_levels(loss, levels, table, folder):
    (folder / "a.yaml").write_text(f"loss: {loss}\n{SMALL_RECIPE}")
    recipe, digest = train.recipe_of(["--config", str(folder / "a.yaml")]), table.scores.digest
    without = digest(recipe, None)
    changes = [digest(recipe, weights) != without for weights in ([2], [1, 2], [1, 1, 2])]
    assert changes == [levels == 1, levels == 2, levels == 3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing"], "no recipes, *.yaml, in missing"),
        (["small/digits", "--jobs", "0"], "--jobs must be >= 1. Received: 0"),
        (["small/digits", "--seeds", "1", "1"], "--seeds must differ. Received: [1, 1]"),
        (["small/digits", "--k", "1", "1"], "--k must differ. Received: [1, 1]"),
        (["small/digits", "--k", "0"], "--k must be >= 1. Received: [0]"),
        (["small/digits", "--level_weights", "1", "2"], "recipe has levels, [1]. Received: [1.0"),
        (["small/digits", "--level_weights", "-1"], "--level_weights must be >= 0"),
        (["small/digits", "--scores", "small"], "--scores must be a file. Received: the folder"),
        (["small/digits", "--scores", "small/digits/lifted.yaml/x.csv"], "lifted.yaml"),
        (["small/digits", "--steps", "3"], "Flags of train.py stand behind --"),
        (["small/digits", "--", "--run", "x"], "--run cannot stand behind --"),
        (["small/digits", "--", "--stpes", "3"], "Did you mean --steps?"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_wrong_arguments_are_rejected_before_anything_runs(arguments, message, rerun, tmp_path):
    assert message in rerun(*arguments).sentence
    assert not (tmp_path / "runs").exists()


def test_levels_of_held_out_classes_are_weighed_as_asked(folder, rerun, tmp_path):
    settings = SMALL_RECIPE.replace("classes_per_batch: 5", "classes_per_batch: 3")
    (folder / "lifted.yaml").write_text(f"loss: hdc\n{settings}validation_share: 0.4\n")
    scores = tmp_path / "runs" / "small_digits_lifted_0" / "distance.json"
    for flags, weights in (
        ([], [1, 1, 1]),
        (["--train_classes", "--level_weights", "1", "1", "2"], [1, 1, 2]),
    ):
        assert rerun(folder, "--seeds", "0", *flags).code == 0
        written = json.loads(scores.read_text())
        assert (written["level_weights"], written["split"]) == (weights, "validation")
    written = json.loads(scores.with_name("train_classes.json").read_text())
    assert (written["level_weights"], written["split"]) == (weights, "train")
    table = (tmp_path / "runs" / "small_digits" / "table.md").read_text()
    assert table.startswith("Of the validation classes.\n")


def row_of(run):
    keys = {"recipe": run, "seed": 0, "settings": "", "classes": "test"}
    return {**keys, "ranked_by": "distance", "recall@1": 0.5}


def test_no_run_begins_after_one_that_fails(table, tmp_path):
    begun, kept = [], tmp_path / "kept.csv"

    def rows_of_run(run):
        begun.append(run)
        if run == "b":
            raise RuntimeError("b failed")
        table.scores.write(kept, [*table.scores.read(kept), row_of("of another process")])
        return [row_of(run)]

    with pytest.raises(RuntimeError, match="b failed"):
        table.complete(rows_of_run, "abcd", 1, kept)
    assert begun == ["a", "b"]
    assert [row["recipe"] for row in table.scores.read(kept)] == ["a", "of another process"]


def test_runs_beside_one_that_fails_end_first(table, tmp_path, capsys):
    failed, kept = threading.Event(), tmp_path / "kept.csv"

    def rows_of_run(run):
        if run == "a":
            failed.set()
            raise RuntimeError("a failed")
        assert failed.wait(timeout=20)
        time.sleep(0.2)
        return [row_of(run)]

    with pytest.raises(RuntimeError, match="a failed"):
        table.complete(rows_of_run, "ab", 2, kept)
    assert [row["recipe"] for row in table.scores.read(kept)] == ["b"]
    assert "a failed. Others end first: 1" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGTERM")
def test_a_stopped_table_stops_the_program_that_it_started(folder, tmp_path):
    command = [sys.executable, ROOT / "recipes" / "run.py", folder, "--seeds", "0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command += ["--", "--steps", "100000"]
    run = tmp_path / "runs" / "small_digits_lifted_0"
    with subprocess.Popen(command, cwd=tmp_path, env=environment, start_new_session=True) as table:
        try:
            deadline = time.monotonic() + 120
            while not run.exists() and time.monotonic() < deadline:
                time.sleep(0.1)
            table.terminate()
            assert table.wait(timeout=60) == 143
        finally:
            if table.poll() is None:
                os.killpg(table.pid, signal.SIGKILL)
    with locked(run, "it still trains"):
        pass


def test_a_run_that_fails_is_named(folder, rerun):
    result = rerun(folder, "--seeds", "0", "--", "--classes_per_batch", "6")
    start = "run.py: error: train.py of small_digits_lifted_0 ended with 2: tfdml-train:"
    assert result.sentence.startswith(start)
    assert "`classes_per_batch`" in result.sentence
