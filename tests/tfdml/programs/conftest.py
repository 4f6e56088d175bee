"""Runs that several files of tests look at."""

import pytest
from small_runs import SMALL, few_digits, run

from tfdml.programs import train


@pytest.fixture(autouse=True, scope="module")
def _quick(without_xla, loaded_once):
    """For all files of this folder."""


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A folder in which a small run has finished, and what it printed."""
    folder = tmp_path_factory.mktemp("finished")
    steps = ["--steps", "60", "--checkpoint_every", "20", "--seed", "2"]
    return folder, run("--loss", "triplet", "--run", "small", *SMALL, *steps, cwd=folder)


@pytest.fixture(scope="session")
def exported_run(tmp_path_factory):
    """A folder in which a run of no steps has exported the features of its backbone."""
    folder = tmp_path_factory.mktemp("exported")
    features = ["--steps", "0", "--embedding_dim", "null"]
    run("--loss", "triplet", "--run", "small", *SMALL, *features, cwd=folder)
    return folder


@pytest.fixture(scope="session")
def trained_with_pddm(tmp_path_factory):
    """A folder in which a run that learns a similarity has finished, on a quarter of the digits."""
    folder = tmp_path_factory.mktemp("pddm")
    options = ["--embedding_dim", "8", "--steps", "20", "--learning_rate", "1e-2"]
    options += ["--loss", "pddm", "--loss_options.num_quadruplets", "per_positive_pair"]
    with few_digits():
        run("--run", "small", *SMALL, *options, cwd=folder)
    return folder


@pytest.fixture
def without_export(monkeypatch):
    """Runs end before their export, a third of their time, where it is the same for all."""
    monkeypatch.setattr(train, "export", lambda *_: None)
