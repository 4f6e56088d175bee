import json
import pathlib
import shutil

import pytest

from benchmarks.peers import coming_from
from benchmarks.peers.case import PML
from benchmarks.peers.parts.losses import CHECKED, key_of

DOCS = pathlib.Path(__file__).parents[3] / "docs"


@pytest.fixture
def page(tmp_path):
    """A copy of the page, in documentation of its own."""
    page = tmp_path / coming_from.PAGE
    page.parent.mkdir()
    return shutil.copy(DOCS / coming_from.PAGE, page)


@pytest.fixture
def measured():
    return json.loads((DOCS / "results" / "peers.json").read_text("utf-8"))


def test_the_page_is_that_of_the_kept_measurements(page, measured, tmp_path):
    whole = page.read_text("utf-8")
    above, _, rest = whole.partition(coming_from.BEGIN)
    below = rest.partition(coming_from.END)[2]
    page.write_text(f"{above}{coming_from.BEGIN}\n\nold\n\n{coming_from.END}{below}", "utf-8")
    assert coming_from.write_comparison(tmp_path, measured) == [page]
    assert page.read_text("utf-8") == whole


def test_a_table_of_a_part_is_not_written(page, measured, tmp_path):
    before = page.read_text("utf-8")
    last = key_of(coming_from.compared()[-1], CHECKED, "float64")
    stopped = {**measured, last: {**measured[last], "differences": {}}}
    measured.pop(last)
    for part in (measured, stopped):
        assert coming_from.write_comparison(tmp_path, part) == []
    assert page.read_text("utf-8") == before
    assert coming_from.write_comparison(tmp_path / "elsewhere", measured) == []


def test_a_difference_that_is_not_known_is_stated(page, measured, tmp_path):
    difference = {"relative": 0.5}
    circle = measured[key_of("circle", CHECKED, "float64")]
    circle["differences"] = {PML: {"value": difference, "gradient": difference}}
    coming_from.write_comparison(tmp_path, measured)
    [row] = [line for line in page.read_text("utf-8").splitlines() if "CircleLoss" in line]
    assert "not equal: why is not known; `m`, `gamma`" in row
