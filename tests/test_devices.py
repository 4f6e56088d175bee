"""train.py on several devices and workers."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import types

import numpy as np
import programs
import pytest
import tensorflow as tf
from small_runs import SMALL, run

from benchmarks.workers import free_addresses
from tfdml.programs import train
from tfdml.runs.devices import Devices, read_config
from tfdml.runs.recipe import Recipe

pytestmark = pytest.mark.usefixtures("without_xla")

ROOT = pathlib.Path(__file__).parents[1]
# Of an even number of images, and without statistics of a part of the batch.
RUN = [*SMALL, "--classes_per_batch", "4", "--freeze_batch_norm", "true", "--run", "small"]
EIGHT_STEPS = ["--steps", "8", "--checkpoint_every", "4"]


def cluster_of(jobs, task):
    return json.dumps({"cluster": jobs, "task": task})


def config_of(index, addresses):
    return cluster_of({"worker": addresses}, {"type": "worker", "index": index})


def start(*arguments, cwd, environment=None, program=(str(ROOT / "train.py"),)):
    return subprocess.Popen(
        [sys.executable, "-u", *program, *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # It must hear Ctrl-C, which a shell keeps from what it starts in the background.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def start_workers(count, *arguments, **options):
    addresses = free_addresses(count)
    return [
        start(*arguments, environment={"TF_CONFIG": config_of(index, addresses)}, **options)
        for index in range(count)
    ]


def finished(*processes):
    outputs = [process.communicate() for process in processes]
    for process, (_, error) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, error
    return outputs


def made(parent, *names):
    folders = [parent / name for name in names]
    for folder in folders:
        folder.mkdir()
    return folders


def losses_of(folder):
    log = folder / "runs" / "small" / "logs" / "epochs.csv"
    return np.atleast_1d(np.genfromtxt(log, delimiter=",", names=True)["loss"])


@pytest.mark.parametrize(
    ("text", "gpus", "expected"),
    [
        ("two", [], "`devices` must be `all`, `gpu`, a number of GPUs, or cpu: and a number"),
        ("gpu", [], "Keras finds no GPU on this machine: leave --devices out"),
        ("0", [], "`devices` must be `all`"),
        ("cpu:0", [], "`devices` must be `all`"),
        ("all", [], "TensorFlow finds no GPU on this machine; use --devices cpu:2 to try it on"),
        (
            "4",
            ["GPU:0"],
            "must not exceed the GPUs that TensorFlow finds. Received: devices='4'",
        ),
    ],
)
def test_rejects_devices_that_are_not_there(text, gpus, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: gpus)
    result = programs.run(train.main, *RUN, "--devices", text, cwd=tmp_path)
    assert expected in result.sentence
    assert not list(tmp_path.iterdir())


def test_rejects_parts_of_a_processor_once_tensorflow_has_started():
    tf.zeros([])
    with pytest.raises(ValueError, match=r"has started already.*cpu:64"):
        Devices("cpu:64").start()


TWO, FIRST = {"worker": ["a:1", "b:2"]}, {"type": "worker", "index": 0}


@pytest.mark.parametrize(
    "config",
    [
        "{",
        "[]",
        json.dumps({"cluster": TWO}),
        cluster_of(TWO, {**FIRST, "index": 0.5}),
        cluster_of(TWO, {**FIRST, "index": 2}),
        cluster_of(TWO, {**FIRST, "type": ["worker"]}),
        cluster_of({"ps": ["a:1"]}, {"type": "ps", "index": 0}),
        cluster_of({"chief": ["c:3", "d:4"], **TWO}, FIRST),
        *(
            cluster_of({"worker": addresses}, FIRST)
            for addresses in ("a:1", ["a:1", "a:1"], ["a:0", "b:2"], ["a", "b"])
        ),
    ],
)
def test_rejects_a_cluster_that_is_none(config, tmp_path, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", config)
    message = programs.run(train.main, *RUN, cwd=tmp_path).sentence
    assert "TF_CONFIG must be JSON such as" in message
    assert message.endswith(f"Received: TF_CONFIG={config!r}")
    assert not list(tmp_path.iterdir())


def test_the_chief_comes_before_the_workers():
    jobs = {"chief": ["c:3"], **TWO}
    assert read_config(cluster_of(jobs, {"type": "chief", "index": 0}))[1] == 0
    assert read_config(cluster_of(jobs, {"type": "worker", "index": 1})) == (
        ("c:3", "a:1", "b:2"),
        2,
    )


def test_rejects_arguments_of_a_worker_without_a_wait(tmp_path, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", config_of(1, ["a:1", "b:2"]))
    message = programs.run(train.main, *RUN, "--devices", "2", cwd=tmp_path).sentence
    assert "`--devices` must not be given with TF_CONFIG" in message


@pytest.mark.slow
def test_ctrl_c_ends_the_wait_for_a_worker(tmp_path):
    environment = {"TF_CONFIG": config_of(1, free_addresses(2))}
    worker = start(*RUN, cwd=tmp_path, environment=environment)
    assert "Waiting for all 2 workers, 10 minutes at most" in worker.stderr.readline()
    time.sleep(5)
    worker.send_signal(signal.SIGINT)
    worker.communicate(timeout=60)
    assert worker.returncode in (130, -signal.SIGINT)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"classes_per_batch": 5}, "must divide the batch.*Received: batch=20, devices=8"),
        ({"sampler": "groups"}, "those of `sampler` groups vary in size"),
        ({"sampler": "whole_classes"}, "those of `sampler` whole_classes vary in size"),
        ({"precision": "mixed_float16"}, "mixed_float16 is for one device"),
    ],
)
def test_rejects_recipes_that_devices_cannot_divide(settings, expected):
    eight = Devices(strategy=types.SimpleNamespace(num_replicas_in_sync=8))
    with pytest.raises(ValueError, match=expected):
        eight.check(Recipe(**settings))
    Devices().check(Recipe(**settings))
    eight.check(Recipe(classes_per_batch=4))


def test_a_run_on_two_devices_equals_one_and_resumes_on_one(tmp_path, monkeypatch):
    one, two = made(tmp_path, "one", "two")
    options = [*RUN, "--schedule", "constant", "--checkpoint_every", "4"]
    began = start(*options, "--steps", "8", "--devices", "cpu:2", cwd=two)
    monkeypatch.setattr(train, "export", lambda *_: None)
    run(*options, "--steps", "12", cwd=one)
    [(out, _)] = finished(began)
    assert "step 8 of 8" in out
    run("--run", "small", "--resume", "--steps", "12", cwd=two)
    found, expected = losses_of(two), losses_of(one)
    assert len(found) == 3
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.slow
def test_workers_equal_one_device_and_the_chief_alone_speaks(tmp_path):
    folders = made(tmp_path, "one", "two")
    finished(start(*RUN, *EIGHT_STEPS, cwd=folders[0]))
    [(chief, _), (other, error)] = finished(*start_workers(2, *RUN, *EIGHT_STEPS, cwd=folders[1]))
    assert "recall@1" in chief
    assert not other
    assert error == "Waiting for all 2 workers, 10 minutes at most\n"
    np.testing.assert_allclose(*map(losses_of, folders), rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("lost", "workers"), [(0, 1), (1, 4)])
def test_a_worker_that_is_killed_ends_the_run_which_resumes_on_others(lost, workers, tmp_path):
    steps = [*RUN, "--steps", "60", "--checkpoint_every", "4"]
    folders = made(tmp_path, "killed", "undisturbed")
    two = start_workers(2, *steps, cwd=folders[0])
    checkpoint = folders[0] / "runs" / "small" / "checkpoint.keras"
    while not checkpoint.exists():
        assert all(worker.poll() is None for worker in two), two[0].communicate()
        time.sleep(0.02)
    two[lost].send_signal(signal.SIGKILL)
    began = time.monotonic()
    two[lost].communicate()
    _, error = two[1 - lost].communicate(timeout=100)
    assert time.monotonic() - began < 60
    assert two[1 - lost].returncode == 1, error
    assert "train.py: error: another worker stopped, or cannot be reached" in error
    assert "--run small --resume" in error
    assert len(losses_of(folders[0])) < 15
    finished(*start_workers(workers, "--run", "small", "--resume", cwd=folders[0]))
    finished(start(*steps, cwd=folders[1]))
    found, expected = map(losses_of, folders)
    assert len(found) == 15
    np.testing.assert_allclose(found, expected, rtol=1e-3)


@pytest.mark.slow
def test_a_worker_whose_devices_fail_ends_the_others():
    program = """
from tfdml.runs import devices, strategies
strategies.SECONDS_TO_CONNECT = 3
own = devices.find_devices()
if not own.is_chief:
    import tensorflow as tf
    tf.distribute.MultiWorkerMirroredStrategy = lambda: 1 / 0
own.start()
"""
    chief, other = start_workers(2, cwd=ROOT, program=("-c", program))
    assert "ZeroDivisionError" in other.communicate(timeout=60)[1]
    _, error = chief.communicate(timeout=60)
    assert chief.returncode == -signal.SIGALRM, error
