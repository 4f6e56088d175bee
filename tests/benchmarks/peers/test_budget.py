import pytest

from benchmarks.peers.workers import budget
from benchmarks.peers.workers.budget import Budget


def test_steps_are_counted_and_the_rate_falls_to_zero():
    steps = Budget(steps=4)
    assert [steps.used(step) for step in range(5)] == [0, 0.25, 0.5, 0.75, 1]
    assert [round(steps.rate(step), 3) for step in range(5)] == [1, 0.854, 0.5, 0.146, 0]


def test_seconds_are_counted_from_the_start_whatever_the_step(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(budget.time, "perf_counter", lambda: now[0])
    seconds = Budget(seconds=20.0)
    assert seconds.rate(7) == 1
    now[0] += 10
    assert seconds.used(7) == 0.5
    assert seconds.rate(7) == pytest.approx(0.5)
    now[0] += 30
    assert seconds.used(7) == 2
    assert seconds.rate(7) == 0
