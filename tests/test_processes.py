"""train.py and evaluate.py in processes of their own: signals, limits and imports."""

import os
import pathlib
import signal
import subprocess
import sys

import keras
import numpy as np
import programs
import pytest
from full_disk import files_of_at_most
from PIL import Image
from small_runs import SMALL, write_images

import pipelines
from tfdml.programs import train

pytestmark = pytest.mark.usefixtures("without_xla")

ROOT = pathlib.Path(__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


def run_program(program, *arguments, cwd):
    """A finished process of Python lines with these arguments."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=cwd,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
    )


def checkpoint_of(folder):
    model = keras.models.load_model(folder / "runs" / "small" / "checkpoint.keras")
    return int(model.optimizer.iterations), model.get_weights()


def losses_of(folder):
    log = folder / "runs" / "small" / "logs" / "epochs.csv"
    return np.genfromtxt(log, delimiter=",", names=True)["loss"]


KILLED_IN_STEP_6 = """
import os, signal, tfdml
from tfdml.programs import train

class Killed(tfdml.callbacks.Checkpoint):
    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.iterations) == 6:
            os.kill(os.getpid(), signal.SIGKILL)

tfdml.callbacks.Checkpoint = Killed
train.main()
"""


@pytest.mark.slow  # tests/test_devices.py compares the losses of a run that resumes
def test_a_killed_run_resumes_with_the_batches_it_would_have_had(tmp_path, monkeypatch):
    arguments = ["--loss", "triplet", "--run", "small", *SMALL]
    arguments += ["--steps", "12", "--checkpoint_every", "4"]
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    killed.mkdir()
    whole.mkdir()
    process = run_program(KILLED_IN_STEP_6, *arguments, cwd=killed)
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert not (killed / "saved_models" / "small").exists()
    assert checkpoint_of(killed)[0] == 4

    resumed = programs.run(train.main, "--run", "small", "--resume", cwd=killed)
    assert resumed.code == 0, resumed.err
    again = programs.run(train.main, "--run", "small", "--resume", cwd=killed)
    assert "'small' is complete" in again.sentence

    monkeypatch.setattr(train, "export", lambda *_: None)
    assert programs.run(train.main, *arguments, cwd=whole).code == 0
    # The same up to the order in which threads add floats.
    np.testing.assert_allclose(losses_of(killed), losses_of(whole), rtol=1e-3)
    (step, weights), (expected_step, expected) = map(checkpoint_of, (killed, whole))
    assert step == expected_step == 12
    for found, weight in zip(weights, expected, strict=True):
        np.testing.assert_allclose(found, weight, atol=1e-4)


def test_a_full_disk_gets_a_sentence_and_leaves_no_half_file(tmp_path):
    steps = ["--steps", "1", "--checkpoint_every", "1"]
    with files_of_at_most(100_000):
        result = programs.run(train.main, "--run", "x", *SMALL, *steps, cwd=tmp_path)
    assert "File too large" in result.sentence
    assert not list(tmp_path.rglob("*.keras"))
    assert not list((tmp_path / "saved_models").iterdir())


WITHOUT_TENSORFLOW = """
import sys
from {module} import main

try:
    main({arguments})
finally:
    heavy = {heavy} & set(sys.modules)
    assert not heavy, heavy
"""
HEAVY = {"tensorflow", "keras", "sklearn"}
LIBRARIES = {*HEAVY, "numpy", "pandas", "pyarrow", "fsspec", "ray", "flask", "faiss"}
LIBRARIES |= {"grpc", "urllib3", "PIL", "matplotlib", "tensorflow_datasets"}


def without(heavy, module, *arguments):
    """A program of a module that must import none of these."""
    return WITHOUT_TENSORFLOW.format(module=module, arguments=[*arguments], heavy=heavy)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("tfdml.programs.train", pipelines.names()),
        ("tfdml.programs.evaluate", pipelines.names()),
        ("tfdml.programs.evaluate ncm", ["--shots"]),
        ("tfdml.programs.evaluate compare", ["--confidence"]),
        ("tfdml.scale.__main__ embed", ["--model", "--images", "--out", "--engine", "--address"]),
        ("tfdml.search.__main__", ["--model", "--images", "--index", "--host", "--rerank"]),
        ("tfdml.client.__main__ embed", ["--server", "--model", "--out"]),
        ("pipelines.cache", ["--lossless"]),
    ],
)
def test_help_waits_for_no_library(command, words, tmp_path):
    result = run_program(without(LIBRARIES, *command.split(), "--help"), cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert [word for word in words if word not in result.stdout] == []


@pytest.mark.parametrize(
    ("heavy", "command", "message"),
    [
        (LIBRARIES, "train --loss_options.marginn 1", "Did you mean 'margin'?"),
        (HEAVY, "evaluate model --dataset folder --data_dir missing", "there is no missing"),
        (
            HEAVY,
            "train --dataset folder --data_dir photos --classes_per_batch 9",
            "Received: classes_per_batch=9, classes=2\n",
        ),
    ],
)
def test_what_cannot_be_is_named_without_the_libraries(heavy, command, message, tmp_path):
    write_images(tmp_path / "photos", dict.fromkeys(("ant", "bee", "cat", "dog"), 2))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "saved_model.pb").touch()
    program = without(heavy, *f"tfdml.programs.{command}".split())
    result = run_program(program, cwd=tmp_path)
    assert result.returncode == 2, result.stderr
    assert message in result.stderr


@pytest.mark.parametrize("script", ["train.py", "evaluate.py"])
def test_scripts_run_without_docstrings(script, tmp_path):
    command = [sys.executable, "-OO", str(ROOT / script), "--help"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "--seed" in result.stdout


@pytest.mark.slow
def test_tensorflow_prints_no_line_for_an_image_that_is_named(tmp_path, rng):
    write_images(tmp_path, {"a": 2, "b": 2})
    image = tmp_path / "a" / "2.jpg"
    Image.fromarray(rng.integers(0, 256, (64, 64, 3), np.uint8)).save(image)
    image.write_bytes(image.read_bytes()[:2000])
    result = subprocess.run(
        [sys.executable, "-m", "pipelines.check", "--dataset", "folder", "--data_dir", tmp_path],
        env={name: ENVIRONMENT[name] for name in ENVIRONMENT if name != "TF_CPP_MIN_LOG_LEVEL"},
        capture_output=True,
        text=True,
    )
    assert f"{image} (" in result.stdout
    assert result.stderr == ""
