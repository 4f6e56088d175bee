"""What the page of the kept measurements, which `test_main.py` writes again, does not show."""

import pytest

from benchmarks.peers import peers_page as page
from benchmarks.peers.case import PML, TFDML
from benchmarks.peers.measurements import Results
from benchmarks.peers.parts import losses


def record_of(case, ours, theirs, differences=None):
    described = {"case": case.description(), "computer": "Z80", "load": 0.25}
    sides = {side: ours if side == TFDML else theirs for side in case.sides}
    differences = {PML: differences} if differences else {}
    return {**described, "sides": sides, "differences": differences}


def measured(seconds, megabytes=8.0):
    return {"seconds": seconds, "megabytes": megabytes, "versions": {"torch": "2"}, "outputs": {}}


@pytest.fixture
def results(tmp_path):
    return Results(tmp_path / "results.json")


def both(value, gradient):
    return {
        name: {"absolute": 2 * size, "relative": size}
        for name, size in {"value": value, "gradient": gradient}.items()
    }


@pytest.mark.parametrize(
    ("name", "size", "reason"),
    [
        ("SupCon", 1e-9, None),
        ("SupCon", 1e-2, "| SupCon | pytorch-metric-learning | not known |"),
        ("circle", 1e-9, "| circle | Keras | not compared, as a side was stopped |"),
        ("Smooth-AP", 1e-2, "as if they were the classes"),
    ],
)
def test_values_that_differ_have_a_reason(results, tmp_path, name, size, reason):
    case = losses.case_of(name, losses.CHECKED, "float64", tmp_path, 0)
    results.add(case, record_of(case, measured(0.1), measured(0.1), both(size, size)))
    text = page.page_of(results, [losses])
    assert ("differs in float64" in text) == bool(reason)
    assert reason is None or reason in text
