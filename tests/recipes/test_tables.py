"""train.py takes every row of every table of recipes/, and experiments their ranges."""

import pathlib

import pytest

from tfdml import experiment
from tfdml.experiments.trainings import Row
from tfdml.runs.table import read_table

ROOT = pathlib.Path(__file__).parents[2]
TABLES = sorted((ROOT / "recipes").rglob("*.yaml"))


def test_a_file_is_a_table():
    assert 9 <= len(TABLES) <= 40
    assert all(read_table(path).rows for path in TABLES)


@pytest.mark.parametrize("path", TABLES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_rows_and_the_ends_of_their_ranges_can_be_trained(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = read_table(path)
    if table.search:
        pytest.importorskip("optuna")
    rows = [Row(table, name) for name in table.rows]
    experiment.check_rows(rows)
    assert len({row.digest for row in rows}) > len(rows) / 2
