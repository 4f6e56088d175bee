"""train.py takes every row of every table of recipes/, and experiments their ranges."""

import pathlib

import pytest

from tfdml.experiment.__main__ import check_rows
from tfdml.experiment.trainings import Row
from tfdml.runs.table import read_table

ROOT = pathlib.Path(__file__).parents[2]
TABLES = sorted((ROOT / "recipes").rglob("*.yaml"))


def to_check():
    """The tables; slow are past searches, whose settings and trials tests/test_results.py reads."""
    for path in TABLES:
        marks = [pytest.mark.slow] * path.stem.endswith("search")
        yield pytest.param(path, marks=marks, id=f"{path.parent.name}/{path.stem}")


@pytest.mark.parametrize("path", to_check())
def test_rows_and_the_ends_of_their_ranges_can_be_trained(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = read_table(path)
    if table.search:
        pytest.importorskip("optuna")
    check_rows([Row(table, name) for name in table.rows])
    assert len({*map(repr, table.rows.values())}) == len(table.rows)
