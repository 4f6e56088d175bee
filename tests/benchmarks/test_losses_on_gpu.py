import json
import pathlib
import subprocess
import sys
import types

import programs
import pytest

from benchmarks import losses_on_gpu
from benchmarks.losses_on_gpu import FULL, ON_JAX, ON_TORCH, PEER, joined, page_of

RESULTS = pathlib.Path(__file__).parents[2] / "docs" / "results"


def test_the_page_is_that_of_the_kept_measurements():
    page = page_of(json.loads((RESULTS / "gpu.json").read_text()))
    assert page == (RESULTS / "gpu.md").read_text(encoding="utf-8")


def test_a_page_without_a_row_that_fits_says_so():
    measured = {"seconds": 0.1, "megabytes": 2.0}
    row = {PEER: FULL, ON_TORCH: measured, ON_JAX: measured}
    page = page_of({"gpu": "A", "versions": {"jax": "1"}, "rows": {"NT-Xent/2048": row}})
    assert "faster than PML in 0 of 0 rows\ncompiled by JAX, and in 0 of 0 rows on eager" in page
    assert "| NT-Xent | out of memory | 100 | 100 |" in page


def test_rows_that_are_not_measured_stay_unless_gpu_or_versions_differ():
    def results(gpu, **rows):
        return {"gpu": gpu, "versions": {"jax": "1"}, "rows": rows}

    kept = results("A", **{"circle/512": 1, "NT-Xent/512": 2, "NT-Xent/4000": 3})
    new = results("A", **{"NT-Xent/512": 4, "triplet, all/512": 5})
    rows = joined(kept, new)["rows"]
    assert [*rows.items()] == [
        ("triplet, all/512", 5), ("circle/512", 1), ("NT-Xent/512", 4), ("NT-Xent/4000", 3)
    ]  # fmt: skip
    other = results("B", **{"NT-Xent/512": 4})
    assert joined(kept, other) == other


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--batches", "5000"], "--batches must be from 8 to 4,000. Received: [5000]"),
        ([], "the measurement on torch failed, as shown above"),
    ],
)
def test_what_cannot_be_measured_leaves_the_kept_measurements(
    arguments, sentence, tmp_path, monkeypatch
):
    failed = types.SimpleNamespace(returncode=1)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    monkeypatch.setattr(sys, "argv", ["losses_on_gpu.py", "--docs", ".", *arguments])
    kept = tmp_path / "results" / "gpu.json"
    kept.parent.mkdir()
    kept.write_text("{}")
    result = programs.run(lambda _: losses_on_gpu.main(), cwd=tmp_path)
    assert sentence in result.sentence
    assert kept.read_text() == "{}"
