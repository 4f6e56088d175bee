"""evaluate.py --compare, which needs the files of scored runs alone."""

import json
import pathlib

import numpy as np
import pytest

from tfdml.evaluation import save_queries
from tfdml.programs import evaluate

IMAGES = {"dataset": "digits", "split": "test"}


@pytest.fixture
def folder(tmp_path, monkeypatch, rng):
    """A folder with runs a, the better b, and c that was scored on its validation images alone."""
    monkeypatch.chdir(tmp_path)
    labels = np.repeat(np.arange(30), 5)
    hits = (rng.random(150) < 0.5).astype(float)
    better = np.where(rng.random(150) < 0.3, 1.0, hits)
    for name, stem, values in (
        ("a", "evaluation", hits),
        ("a", "evaluation_similarity", better),
        ("b", "evaluation", better),
        ("c", "evaluation_validation", hits),
    ):
        run = tmp_path / "runs" / name
        run.mkdir(parents=True, exist_ok=True)
        (run / f"{stem}.json").write_text("{}")
        save_queries(run / f"{stem}_queries.npz", {"recall@1": values}, labels, images=IMAGES)
    return tmp_path


def refusal(capsys, *arguments):
    with pytest.raises(SystemExit, match="2"):
        evaluate.main(["--compare", *arguments])
    error = capsys.readouterr().err
    assert error.startswith("tfdml-evaluate")
    assert error.count("\n") == 1
    return error


@pytest.mark.parametrize("second", ["runs/b", "runs/b/", "runs/b/evaluation.json"])
def test_puts_runs_side_by_side(second, folder, capsys):
    evaluate.main(["--compare", "runs/a", second, "--out", "new/comparison.json"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["150 images of 30 classes:", "recall@1"]
    assert lines[2].split()[0] == "runs/a"
    assert lines[3].split()[0] == second
    assert lines[3].endswith(" *")
    assert lines[-1] == "Comparison: new/comparison.json"
    found = json.loads((folder / "new" / "comparison.json").read_text())
    assert found["rounds"] == 1000
    assert found["runs"][second]["recall@1"]["difference"]["p"] < 0.05


@pytest.mark.usefixtures("folder")
def test_compares_rankings_of_one_run(capsys):
    scores = ["runs/a/evaluation.json", "runs/a/evaluation_similarity.json"]
    evaluate.main([scores[0], "--compare", scores[1], "--rounds", "200", "--confidence", "0.9"])
    assert "90% bootstrap intervals" in capsys.readouterr().out


@pytest.mark.usefixtures("folder")
def test_rejects_in_one_sentence(capsys):
    assert "required: runs" in refusal(capsys)
    assert "two or more. Received: runs=['runs/a']" in refusal(capsys, "runs/a")
    for again in ("runs/a", "./runs/a"):
        message = refusal(capsys, "runs/a", again)
        assert (
            f"needs runs with scores of their own. Received: runs=['runs/a', '{again}']" in message
        )
    assert "runs/other does not exist" in refusal(capsys, "runs/a", "runs/other")
    pathlib.Path("runs/new").mkdir()
    message = refusal(capsys, "runs/a", "runs/new")
    assert "no values of queries, runs/new/evaluation_queries.npz" in message
    assert "score the run by tfdml-evaluate, and give its folder in runs/" in message
    message = refusal(capsys, "runs/a", "runs/c")
    assert "it has those in runs/c/evaluation_validation.json" in message
    message = refusal(capsys, "runs/a", "runs/b", "--confidence", "95")
    assert "`confidence` must be > 0 and < 1. Received: confidence=95.0" in message
    assert "--nmi" in refusal(capsys, "runs/a", "runs/b", "--nmi", "false")
    assert "cannot write" in refusal(
        capsys, "runs/a", "runs/b", "--out", "runs/a/evaluation.json/x"
    )
    pathlib.Path("runs/b/evaluation_queries.npz").write_bytes(b"")
    assert "is not an archive of per-query values" in refusal(capsys, "runs/a", "runs/b")
