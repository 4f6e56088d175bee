"""Runs that several files of tests look at."""

import pytest
from small_runs import SMALL, run

from tfdml.programs import train


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A folder in which a small run has finished, and what it printed."""
    folder = tmp_path_factory.mktemp("finished")
    steps = ["--steps", "60", "--checkpoint_every", "20", "--seed", "2"]
    return folder, run("--loss", "triplet", "--run", "small", *SMALL, *steps, cwd=folder)


@pytest.fixture
def without_export(monkeypatch):
    """Runs end before their export, a third of their time, where it is the same for all."""
    monkeypatch.setattr(train, "export", lambda *_: None)
