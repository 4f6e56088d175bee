import pathlib

import pytest

from benchmarks.peers import coming_from
from benchmarks.peers.case import PML
from benchmarks.peers.objectives import OBJECTIVES
from benchmarks.peers.parts.losses import CHECKED, key_of

DOCS = pathlib.Path(__file__).parents[3] / "docs"


@pytest.fixture
def docs(tmp_path):
    """Documentation with a page that has room for the table."""
    page = tmp_path / coming_from.PAGE
    page.parent.mkdir()
    page.write_text(f"above\n\n{coming_from.BEGIN}\n\nold\n\n{coming_from.END}\n\nbelow\n")
    return tmp_path


def records(**sizes):
    """A record of each objective of PML, equal but for the relative differences given."""
    made = {}
    for name in coming_from.compared():
        difference = {"relative": sizes.get(name, 0.0)}
        made[key_of(name, CHECKED, "float64")] = {
            "differences": {PML: {"value": difference, "gradient": difference}}
        }
    return made


def test_the_table_says_what_is_equal_and_why_not(docs):
    [page] = coming_from.write_comparison(docs, records(contrastive=0.5, circle=0.5))
    lines = page.read_text().splitlines()
    assert lines[0] == "above"
    assert lines[-1] == "below"
    assert "old" not in lines
    assert "| `SupConLoss()` | `SupConLoss()` | equal |" in lines
    mined = "| `TripletMarginLoss(margin=0.05)` with `BatchHardMiner()` |"
    assert any(line.startswith(mined) for line in lines)
    [circle] = [line for line in lines if "CircleLoss" in line]
    assert "not equal: why is not known; `m`, `gamma`" in circle
    [contrastive] = [line for line in lines if line.startswith("| `ContrastiveLoss()` |")]
    assert "not equal: PML adds the mean" in contrastive


def test_a_table_of_a_part_is_not_written(docs):
    before = (docs / coming_from.PAGE).read_text()
    measured = records()
    _, last = measured.popitem()
    assert coming_from.write_comparison(docs, measured) == []
    measured[key_of(coming_from.compared()[-1], CHECKED, "float64")] = {**last, "differences": {}}
    assert coming_from.write_comparison(docs, measured) == []  # PML was stopped
    assert (docs / coming_from.PAGE).read_text() == before
    assert coming_from.write_comparison(docs / "elsewhere", records()) == []


def test_the_page_compares_every_objective_as_it_is_measured():
    text = (DOCS / coming_from.PAGE).read_text()
    _, _, rest = text.partition(coming_from.BEGIN)
    rows = [line for line in rest.partition(coming_from.END)[0].splitlines() if line[:3] == "| `"]
    assert len(rows) == len(coming_from.compared())
    for row, name in zip(rows, coming_from.compared(), strict=True):
        objective = OBJECTIVES[name]
        assert f"| `{objective.tfdml}` |" in row
        assert ("not equal" in row) == (PML in objective.differs)
        assert objective.note in row
