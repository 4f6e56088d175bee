"""The programs of recipes/, run in this process."""

import concurrent.futures
import contextlib
import importlib
import pathlib
import subprocess
import sys
import types
import unittest.mock

import programs
import pytest
from small_runs import SMALL_RECIPE, few_digits

from tfdml.programs import evaluate, train

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path):
    """A folder of one recipe."""
    folder = tmp_path / "small" / "digits"
    folder.mkdir(parents=True)
    (folder / "lifted.yaml").write_text(f"loss: lifted\n{SMALL_RECIPE}")
    return folder


@pytest.fixture
def table(monkeypatch):
    """The module of recipes/run.py."""
    monkeypatch.syspath_prepend(ROOT / "recipes")
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "1")  # it sets another
    return importlib.import_module("run")


@pytest.fixture
def _few_digits():
    with few_digits():
        yield


@pytest.fixture
def rerun(table, tmp_path, monkeypatch):
    """Runs a program of recipes/ in this process, and what it starts too."""
    mains = {"train.py": train.main, "evaluate.py": evaluate.main}

    def start(command, stdout, stderr):
        result = programs.run(mains[pathlib.Path(command[1]).name], *command[2:], cwd=tmp_path)
        stdout.write(result.out + result.err)
        child = unittest.mock.Mock()
        child.wait.return_value = result.code
        return child

    def submit(function, run):
        future = concurrent.futures.Future()
        try:
            future.set_result(function(run))
        except RuntimeError as error:
            future.set_exception(error)
        return future

    @contextlib.contextmanager
    def one_after_the_other(jobs):
        yield types.SimpleNamespace(submit=submit)

    started = types.SimpleNamespace(Popen=start, STDOUT=subprocess.STDOUT)
    monkeypatch.setattr(table, "subprocess", started)
    monkeypatch.setattr(table, "ThreadPoolExecutor", one_after_the_other)

    def run(*arguments, program=table):
        monkeypatch.setattr(sys, "argv", [program.PROGRAM, *map(str, arguments)])
        return programs.run(lambda _: program.main(), cwd=tmp_path)

    return run
