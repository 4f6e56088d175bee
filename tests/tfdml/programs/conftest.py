"""Runs that several files of tests look at."""

import contextlib

import pytest
from small_runs import SMALL, few_digits, run

from tfdml.programs import train


@contextlib.contextmanager
def quickly():
    """Within it, runs are not compiled by XLA, and score a quarter of the digits."""
    with few_digits(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("keras.src.trainers.trainer.model_supports_jit", lambda model: False)
        yield


@pytest.fixture(autouse=True, scope="module")
def _quickly(loaded_once):
    """For all files of this folder."""
    with quickly():
        yield


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A folder in which a small run has finished, and what it printed."""
    folder = tmp_path_factory.mktemp("finished")
    steps = ["--steps", "60", "--checkpoint_every", "20", "--seed", "2"]
    with quickly():  # set up before the module
        return folder, run("--loss", "triplet", "--run", "small", *SMALL, *steps, cwd=folder)


@pytest.fixture(scope="session")
def exported_run(tmp_path_factory):
    """A folder in which a run of no steps has exported the features of its backbone."""
    folder = tmp_path_factory.mktemp("exported")
    features = ["--steps", "0", "--embedding_dim", "null"]
    with quickly():
        run("--loss", "triplet", "--run", "small", *SMALL, *features, cwd=folder)
    return folder


@pytest.fixture(scope="session")
def trained_with_pddm(tmp_path_factory):
    """A folder in which a run that learns a similarity has finished."""
    folder = tmp_path_factory.mktemp("pddm")
    options = ["--embedding_dim", "8", "--steps", "20", "--learning_rate", "1e-2"]
    options += ["--loss", "pddm", "--loss_options.num_quadruplets", "per_positive_pair"]
    with quickly():
        run("--run", "small", *SMALL, *options, cwd=folder)
    return folder


@pytest.fixture
def without_export(monkeypatch):
    """Runs end before their export, a third of their time, where it is the same for all."""
    monkeypatch.setattr(train, "export", lambda *_: None)
