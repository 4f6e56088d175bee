import pytest

from benchmarks.peers.case import Case
from benchmarks.peers.measurements import Results


def a_case(key="losses/a", **settings):
    return Case(key, {"tfdml": ("module", {"k": (1, 2)})}, {"threads": 1, **settings})


def record_of(case, **side):
    described = {"case": case.description(), "computer": "", "load": 0.0}
    return {**described, "sides": {"tfdml": side}, "differences": {}}


def test_failures_are_forgotten_and_limits_are_not(tmp_path):
    results = Results(tmp_path / "results.json")
    stops = {"losses/failed": "failed: ValueError", "losses/slow": "> 120 s"}
    for key, stopped in stops.items():
        results.add(a_case(key), record_of(a_case(key), stopped=stopped))
    results.drop_failures()
    assert list(results.records) == ["losses/slow"]


@pytest.mark.parametrize("text", ["3", '{"rows": {}}', "{", '{"losses/a": 3}'])
def test_a_file_of_something_else_is_rejected(text, tmp_path):
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(ValueError, match="must be one that this program wrote"):
        Results(tmp_path / "results.json")
