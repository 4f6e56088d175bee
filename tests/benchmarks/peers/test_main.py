import json
import pathlib
import sys

import programs
import pytest

from benchmarks.peers import __main__ as peers
from benchmarks.peers.measurements import Results
from benchmarks.peers.peers_page import page_of
from benchmarks.peers.process import StoppedError

RESULTS = pathlib.Path(__file__).parents[3] / "docs" / "results"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the program, whose cases are only noted; returns its result and their keys."""
    measured = []

    def measure(case, pythons, folder):
        assert pythons["tfdml"] == sys.executable
        assert pythons["pml"] == "python of the peers"
        measured.append(case.key)
        sides = {side: {"seconds": 1.0, "megabytes": 1.0, "outputs": {}} for side in case.sides}
        described = {"case": case.description(), "computer": "", "load": 0.0}
        return {**described, "sides": sides, "differences": {}}

    monkeypatch.setattr(peers, "measure", measure)
    monkeypatch.setattr(peers, "python_of_peers", lambda folder: "python of the peers")

    def of(*arguments):
        measured.clear()
        given = ["--folder", "runs", "--docs", "docs", *arguments]
        return programs.run(peers.main, *given, cwd=tmp_path), list(measured)

    return of


LOSSES = ("--only", "losses", "--batches", "128", "--objectives", "circle", "SupCon")


def test_a_part_is_measured_once_and_its_page_written_again(run, tmp_path):
    result, keys = run(*LOSSES)
    assert result.code == 0, result.err
    wanted = [
        f"losses/{name}/{what}" for what in ("24/float64", "128/float32") for name in LOSSES[-2:]
    ]
    assert keys == wanted
    written = tmp_path / "docs" / "results"
    assert list(json.loads((written / "peers.json").read_text())) == wanted
    assert run(*LOSSES)[1] == run(*LOSSES[:-1])[1] == []
    (written / "peers.md").unlink()
    result, keys = run("--write")
    assert (result.code, keys) == (0, [])
    assert "| circle |" in (written / "peers.md").read_text()


def test_a_run_that_was_stopped_goes_on(run, monkeypatch):
    measure = peers.measure

    def interrupted(case, *others):
        if case.key == "losses/circle/128/float32":
            raise KeyboardInterrupt
        return measure(case, *others)

    with monkeypatch.context() as stopped:
        stopped.setattr(peers, "measure", interrupted)
        result, keys = run(*LOSSES)
    assert result.code == 130
    assert "the same command goes on" in result.err
    assert len(keys) == 2
    assert run(*LOSSES)[1] == ["losses/circle/128/float32", "losses/SupCon/128/float32"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "speed"], "speed"),
        (["--batches", "4"], "--batches must be from 8 to 4,000. Received: [4]"),
        (["--write"], "benchmarks/peers: error: nothing was measured yet"),
        (["--data_dir", "."], "cars196"),
    ],
)
def test_what_cannot_be_is_rejected_before_anything_is_measured(run, arguments, message, tmp_path):
    result, keys = run(*arguments)
    assert (result.code, keys) == (2, [])
    assert message in result.err
    assert not (tmp_path / "docs").exists()


def test_inputs_that_cannot_be_made_stop_a_run_before_it_measures(run, monkeypatch):
    def broken(arguments, results):
        raise StoppedError("failed: the images cannot be read")
        yield

    monkeypatch.setattr("benchmarks.peers.parts.race.cases", broken)
    monkeypatch.setattr(peers, "check_data", lambda *_: None)
    result, keys = run("--only", "losses", "race")
    assert "the images cannot be read" in result.sentence
    assert keys == []


def test_the_page_is_that_of_the_kept_measurements():
    page = page_of(Results(RESULTS / "peers.json"), peers.parts(peers.PARTS))
    assert page == (RESULTS / "peers.md").read_text(encoding="utf-8")
