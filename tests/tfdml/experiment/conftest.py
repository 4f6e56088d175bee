"""A small table of experiments, run in this process."""

import concurrent.futures

import programs
import pytest

from tfdml.experiment import running
from tfdml.experiment.__main__ import main

TABLE = """\
settings: {dataset: digits, classes_per_batch: 2, embedding_dim: 4, steps: 4, checkpoint_every: 2}
rows:
  triplet: {loss: triplet}
  contrastive: {loss: contrastive}
search:
  trials: 3
  ranges: {learning_rate: {low: 1.0e-4, high: 1.0e-2, log: true}}
  rows:
    triplet: {loss_options.margin: [0.1, 0.2, 0.4]}
folds: 2
seeds: [0, 1]
"""


class Here(concurrent.futures.Executor):
    """Runs what is submitted at once, in this process."""

    def __init__(self, *_):
        pass

    def submit(self, function, *arguments):
        future = concurrent.futures.Future()
        try:
            future.set_result(function(*arguments))
        except RuntimeError as error:
            future.set_exception(error)
        return future


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "some" / "digits.yaml"
    path.parent.mkdir()
    path.write_text(TABLE)
    return path


@pytest.fixture
def run(table, monkeypatch):
    """Runs the table in a folder."""
    pytest.importorskip("optuna")
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "1")  # it sets another
    monkeypatch.setattr(running, "ProcessPoolExecutor", Here)
    monkeypatch.setattr(running, "POLL", 0.01)
    monkeypatch.setattr(running, "RANDOM_TRIALS", 1)  # the others follow from their scores

    def start(*arguments, cwd=None):
        return programs.run(main, table, *arguments, cwd=cwd or table.parent)

    return start
