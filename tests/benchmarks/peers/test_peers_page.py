"""What the page of the kept measurements, which `test_main.py` writes again, does not show."""

import numpy as np
import pytest

from benchmarks.peers import peers_page as page
from benchmarks.peers.case import PML, TFDML
from benchmarks.peers.measurements import Results
from benchmarks.peers.parts import evaluation, losses


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


def test_inputs_are_the_same_whenever_they_are_made(tmp_path):
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        name = losses.inputs_of(folder, 24, 3, 64)
    with np.load(tmp_path / "a" / name) as one, np.load(tmp_path / "b" / name) as other:
        assert one["rows"].shape == (24, losses.DIM)
        assert one["proxies"].shape == (losses.CLASSES, 3, losses.DIM)
        np.testing.assert_allclose(np.linalg.norm(one["memory_rows"], axis=1), 1, rtol=1e-6)
        for key in one.files:
            np.testing.assert_array_equal(one[key], other[key])


def test_classes_of_the_evaluation_have_two_rows_or_more(tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation, "CLASSES", {50: 20})
    with np.load(tmp_path / evaluation.inputs_of(tmp_path, 50)) as arrays:
        _, counts = np.unique(arrays["labels"], return_counts=True)
    assert len(counts) == 20
    assert counts.min() >= 2
