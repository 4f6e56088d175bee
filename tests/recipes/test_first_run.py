"""recipes/first_run.py compares the losses with the untrained network."""

import importlib
import json

import programs
import pytest

from tfdml.programs import train


@pytest.fixture
def first_run(table):
    """The module of recipes/first_run.py, beside which `table` stands."""
    return importlib.import_module("first_run")


def test_first_runs_that_start_with_other_networks_have_their_own_start(first_run, rerun, tmp_path):
    arguments = ["--sets", "digits", "--steps", "1", "--seeds", "0", "--losses", "lifted", "npair"]
    assert rerun(*arguments, program=first_run).code == 0
    raw, unit = (tmp_path / "runs" / "first_run.md").read_text().splitlines()[2:]
    assert raw.split(" | ")[1].split(" → ")[0] != unit.split(" | ")[1].split(" → ")[0]


@pytest.mark.slow
def test_first_runs_in_processes_of_their_own_are_the_same(first_run, rerun, tmp_path):
    arguments = ["--sets", "digits", "--steps", "1", "2", "--seeds", "0", "--losses", "npair"]
    tables = []
    for jobs in ("1", "2"):
        own = ["--jobs", jobs, "--scores", f"{jobs}.csv"]
        assert rerun(*arguments, *own, program=first_run).code == 0
        tables.append((tmp_path / "runs" / "first_run.md").read_text())
    assert tables[0] == tables[1]


def test_a_first_run_of_a_loss_is_compared_with_the_untrained_network(
    first_run, rerun, tmp_path, monkeypatch
):
    arguments = ["--sets", "digits", "--steps", "1", "2", "--seeds", "0", "--losses", "npair"]
    result = rerun(*arguments, program=first_run)
    assert result.code == 0, result.err
    lines = (tmp_path / "runs" / "first_run.md").read_text().splitlines()
    assert lines[0] == "| loss | digits, random, 1 | digits, random, 2 |"
    flags = first_run.flags_of(("digits", "random", 2), "npair", 0, None)
    assert programs.run(train.main, *flags, "--run", "alone", cwd=tmp_path).code == 0
    alone = json.loads((tmp_path / "runs" / "alone" / "scores.json").read_text())
    ends = [f"{100 * alone[stage]['recall@1']:.1f}" for stage in ("untrained", "trained")]
    assert " → ".join(ends) in lines[2]
    assert ("**" in lines[2].split(" | ")[2]) == (not alone["improved"])
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| npair"]
    with monkeypatch.context() as context:
        context.setattr(first_run, "row_of", lambda *_, **__: pytest.fail("made again"))
        kept = rerun(*arguments, "--weights", "missing.h5", program=first_run)
        assert kept.code == 0  # no run reads them
    assert (tmp_path / "runs" / "first_run.md").read_text().splitlines() == lines
    for loss in first_run.NAMES:
        flags = first_run.flags_of(("digits", "random", 1), loss, 0, None)
        train.check_model(train.parse(flags)[0])
    impossible = ["--losses", "sampled_classes", "--steps", "1", "--scores", "impossible.csv"]
    assert rerun("--sets", "digits", "--seeds", "0", *impossible, program=first_run).code == 0
    written = (tmp_path / "runs" / "first_run.md").read_text()
    assert written.splitlines()[2] == "| sampled_classes | – |"
    diverging = ["--losses", "npair", "--steps", "3", "--scores", "diverging.csv"]
    with monkeypatch.context() as context:
        context.setattr(first_run, "OPTIONS", {"npair": ["--learning_rate", "1e30"]})
        result = rerun("--sets", "digits", "--seeds", "0", *diverging, program=first_run)
    assert "digits_random_3_npair, seed 0: " in result.sentence
    result = rerun("--jobs", "0", program=first_run)
    assert "--jobs must be >= 1. Received: 0" in result.sentence
    result = rerun("--sets", "cub200", program=first_run)
    assert "--sets cub200 needs --cub200 PATH" in result.sentence
    result = rerun("--sets", "cub200", "--cub200", "missing", program=first_run)
    assert "--cub200 must be a folder. Received: cub200='missing'" in result.sentence
    result = rerun("--weights", "missing.h5", program=first_run)
    assert "--weights must be imagenet or a file. Received: weights=" in result.sentence
