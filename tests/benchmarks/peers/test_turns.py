import pathlib
import re
import sys

import pytest

from benchmarks.peers.case import Case
from benchmarks.peers.turns import difference, measure


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Function of {side: settings} and limits to the record of a case of dummy sides."""
    monkeypatch.setenv("PYTHONPATH", str(pathlib.Path(__file__).parent))

    def of(sides, **limits):
        modules = {side: ("dummy_side", {"name": side, **own}) for side, own in sides.items()}
        case = Case("dummy", modules, {"threads": 1}, **{"rounds": 2, **limits})
        return measure(case, dict.fromkeys(sides, sys.executable), tmp_path)

    return of


def test_sides_work_in_turns_on_the_same_case(measured, tmp_path):
    record = measured({"a": {"sleeps": 0.2}, "b": {"sleeps": 0.2, "value": 1.5}})
    # Each side once at first; a round of 0.3 s is two calls, or one on a busy machine.
    assert re.fullmatch("ab(aa?bb?){2}", (tmp_path / "turns").read_text())
    assert list(record["sides"]) == ["a", "b"]
    for side in record["sides"].values():
        assert 0.2 <= side["seconds"] < 1
        assert len(side["rounds"]) == 2
        assert side["versions"] == {"dummy": "1.0"}
    assert record["sides"]["b"]["outputs"] == {"value": 1.5}
    assert record["differences"]["b"]["rows"] == {"absolute": 0.5, "relative": 0.5 / 1.5}


def test_a_side_that_fails_or_holds_too_much_says_so(measured):
    sides = {"a": {"fails": True}, "b": {"megabytes": 1}, "c": {"megabytes": 600}}
    record = measured(sides, gigabytes=0.4)
    assert record["sides"]["a"] == {"stopped": "failed: ValueError: of no use"}
    assert 0.9 < record["sides"]["b"]["megabytes"] < 20
    assert record["sides"]["c"] == {"stopped": "> 0.4 GB"}
    assert record["differences"] == {}  # from the first side, which has none


def test_differences_are_relative_to_the_larger_side():
    assert difference([1.0, -4.0], [1.0, -3.0]) == {"absolute": 1.0, "relative": 0.25}
    assert difference([0.0], [0.0]) == {"absolute": 0.0, "relative": 0.0}
