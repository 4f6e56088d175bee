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
from small_runs import SMALL, run, write_images

from benchmarks.workers import free_addresses
from tfdml.programs import train
from tfdml.runs.devices import Devices, of_environment
from tfdml.runs.recipe import Recipe

ROOT = pathlib.Path(__file__).parents[1]
# Of an even number of images, and without statistics of a part of the batch.
RUN = [*SMALL, "--classes_per_batch", "4", "--freeze_batch_norm", "true", "--run", "small"]
EIGHT_STEPS = ["--steps", "8", "--checkpoint_every", "4"]
WORKERS = {"worker": ["a:1", "b:2"]}


def config_of(index, addresses):
    return json.dumps(
        {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
    )


def start(*arguments, cwd, environment=None):
    return subprocess.Popen(
        [sys.executable, "-u", str(ROOT / "train.py"), *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # It must hear Ctrl-C, which a shell keeps from what it starts in the background.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def start_workers(count, *arguments, cwd, environment=None):
    addresses, given = free_addresses(count), environment or {}
    return [
        start(*arguments, cwd=cwd, environment={**given, "TF_CONFIG": config_of(index, addresses)})
        for index in range(count)
    ]


def finished(*processes):
    outputs = [process.communicate() for process in processes]
    for process, (_, error) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, error
    return outputs


def losses_of(folder):
    log = folder / "runs" / "small" / "logs" / "epochs.csv"
    return np.atleast_1d(np.genfromtxt(log, delimiter=",", names=True)["loss"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("two", "`devices` must be `all`, a number of GPUs, or cpu: and a number"),
        ("0", "`devices` must be `all`"),
        ("cpu:0", "`devices` must be `all`"),
        ("all", "TensorFlow finds no GPU on this machine; use --devices cpu:2 to try it on the"),
        ("4", "TensorFlow finds no GPU on this machine"),
    ],
)
def test_rejects_devices_that_are_not_there(text, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: [])
    result = programs.run(train.main, *RUN, "--devices", text, cwd=tmp_path)
    assert expected in result.sentence
    assert not list(tmp_path.iterdir())


def test_rejects_more_gpus_than_there_are(monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: ["GPU:0"])
    with pytest.raises(ValueError, match=r"must not exceed the GPUs .*devices='4', GPUs=1"):
        Devices("4").started()


def test_rejects_parts_of_a_processor_once_tensorflow_has_started():
    tf.zeros([])
    with pytest.raises(ValueError, match=r"has started already.*cpu:64"):
        Devices("cpu:64").started()


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("{", "TF_CONFIG must be JSON such as"),
        ("[]", "TF_CONFIG must be JSON such as"),
        (json.dumps({"cluster": WORKERS}), "KeyError: 'task'"),
        (json.dumps({"task": {"type": "worker", "index": 0}}), "KeyError: 'cluster'"),
        (
            json.dumps({"cluster": WORKERS, "task": {"type": "worker", "index": 2}}),
            "the task of TF_CONFIG must be one of its cluster",
        ),
        (
            json.dumps({"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0}}),
            "TF_CONFIG must have workers, and at most one chief, alone",
        ),
        (config_of(0, ["a:1", "a:1"]), "must be different texts HOST:PORT"),
        (config_of(0, "a:1"), "must be lists of addresses. Received: cluster={'worker': 'a:1'}"),
        (config_of(0.5, ["a:1", "b:2"]), "TF_CONFIG must be JSON such as"),
        (
            json.dumps({"cluster": WORKERS, "task": {"type": ["worker"], "index": 0}}),
            "the task of TF_CONFIG must be one of its cluster",
        ),
        (config_of(0, ["a:0", "b:2"]), "must be different texts HOST:PORT"),
        (config_of(0, ["a", "b"]), "must be different texts HOST:PORT"),
        (config_of(0, ["a:1", "b:65536"]), "must be different texts HOST:PORT"),
    ],
)
def test_rejects_a_cluster_that_is_none(config, expected, tmp_path, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", config)
    assert expected in programs.run(train.main, *RUN, cwd=tmp_path).sentence
    assert not list(tmp_path.iterdir())


def test_the_chief_comes_before_the_workers():
    cluster = {"chief": ["c:3"], **WORKERS}
    parts = [
        of_environment({"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}).part
        for task in ({"type": "chief", "index": 0}, {"type": "worker", "index": 1})
    ]
    assert parts == [(0, 3), (2, 3)]
    assert of_environment({}).part == (0, 1)


def is_taken(folder):
    (folder / "runs" / "small").mkdir(parents=True)
    (folder / "runs" / "small" / "config.yaml").touch()


def cannot_be_written(folder):
    (folder / "runs").write_text("a file")


@pytest.mark.parametrize(
    ("prepare", "expected"),
    [
        (is_taken, "run 'small' exists. Choose another --run, or go on with --resume"),
        (cannot_be_written, "cannot write to"),
    ],
)
def test_workers_end_with_a_chief_rejected_before_tensorflow_is_imported(
    prepare, expected, tmp_path
):
    prepare(tmp_path)
    (tmp_path / "tensorflow.py").write_text("raise AssertionError('imported')")
    environment = {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    two = start_workers(2, *RUN, cwd=tmp_path, environment=environment)
    for process, sentence in zip(two, (expected, "was rejected: see what it printed"), strict=True):
        _, error = process.communicate(timeout=60)
        assert process.returncode == 2, error
        assert sentence in error


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (["--stepz", "4"], "unrecognized arguments: --stepz"),
        (["--devices", "2"], "`--devices` must not be given with TF_CONFIG"),
    ],
)
def test_workers_end_with_one_of_wrong_arguments(wrong, expected, tmp_path):
    addresses = free_addresses(2)
    two = [
        start(*RUN, *more, cwd=tmp_path, environment={"TF_CONFIG": config_of(index, addresses)})
        for index, more in enumerate(([], wrong))
    ]
    for process, sentence in zip(two, ("was rejected: see what it printed", expected), strict=True):
        _, error = process.communicate(timeout=60)
        assert process.returncode == 2, error
        assert sentence in error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("sent", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 130)]
)
def test_a_signal_ends_the_wait_for_a_worker(sent, code, tmp_path):
    environment = {"TF_CONFIG": config_of(1, free_addresses(2))}
    worker = start(*RUN, cwd=tmp_path, environment=environment)
    assert "Waiting for all 2 workers, 10 minutes at most" in worker.stderr.readline()
    worker.send_signal(sent)
    worker.communicate(timeout=60)
    assert worker.returncode == code


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
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    options = [*RUN, "--schedule", "constant", "--checkpoint_every", "4"]
    two = start(*options, "--steps", "8", "--devices", "cpu:2", cwd=tmp_path / "two")
    monkeypatch.setattr(train, "export", lambda *_: None)
    run(*options, "--steps", "12", cwd=tmp_path / "one")
    [(out, _)] = finished(two)
    assert "step 8 of 8" in out
    run("--run", "small", "--resume", "--steps", "12", cwd=tmp_path / "two")
    found, expected = losses_of(tmp_path / "two"), losses_of(tmp_path / "one")
    assert len(found) == 3
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.slow
def test_hard_neighbours_and_scores_are_found_on_two_workers(tmp_path):
    options = ["--sampler", "pairs", "--sampler_options.hard_neighbours", "true"]
    options += ["--validation_share", "0.4", "--classes_per_batch", "2"]
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    finished(start(*RUN, *options, *EIGHT_STEPS, cwd=folders[0]))
    finished(*start_workers(2, *RUN, *options, *EIGHT_STEPS, cwd=folders[1]))
    np.testing.assert_allclose(*map(losses_of, folders), rtol=1e-4)


@pytest.mark.slow
def test_workers_equal_one_device_and_the_chief_alone_speaks(tmp_path):
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
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
    folders = [tmp_path / "killed", tmp_path / "undisturbed"]
    for folder in folders:
        folder.mkdir()
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
@pytest.mark.parametrize("lost", [0, 1])
def test_a_worker_that_misses_images_ends_the_others(lost, tmp_path):
    addresses, workers = free_addresses(2), []
    for index in range(2):
        folder = tmp_path / str(index)
        if index == lost:
            folder.mkdir()
        else:
            write_images(folder, dict.fromkeys("abcdefgh", 4))
        options = ["--dataset", "folder", "--data_dir", str(folder), "--image_size", "16"]
        environment = {"TF_CONFIG": config_of(index, addresses)}
        workers.append(start(*RUN, *options, cwd=tmp_path, environment=environment))
    _, error = workers[lost].communicate()
    assert workers[lost].returncode == 2, error
    began = time.monotonic()
    _, error = workers[1 - lost].communicate(timeout=100)
    assert time.monotonic() - began < 60
    assert workers[1 - lost].returncode == 1, error
    assert "train.py: error: another worker stopped, or cannot be reached" in error


@pytest.mark.slow
def test_a_worker_whose_devices_fail_ends_the_others():
    program = """
from tfdml.runs import devices
devices.SECONDS_TO_CONNECT = 3
own = devices.of_environment()
if not own.is_chief:
    import tensorflow as tf
    tf.distribute.MultiWorkerMirroredStrategy = lambda: 1 / 0
own.started()
"""
    addresses = free_addresses(2)
    chief, other = (
        subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, "TF_CONFIG": config_of(index, addresses)},
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(2)
    )
    assert "ZeroDivisionError" in other.communicate(timeout=60)[1]
    _, error = chief.communicate(timeout=60)
    assert chief.returncode == -signal.SIGKILL, error
    assert "error: TensorFlow did not connect the workers in 3 s" in error


@pytest.mark.slow
def test_sigterm_ends_a_worker_and_so_the_others(tmp_path):
    two = start_workers(2, *RUN, "--steps", "600", "--checkpoint_every", "4", cwd=tmp_path)
    while not (tmp_path / "runs" / "small" / "checkpoint.keras").exists():
        assert all(worker.poll() is None for worker in two), two[0].communicate()
        time.sleep(0.02)
    two[1].terminate()
    _, error = two[0].communicate(timeout=100)
    assert [worker.wait(5) for worker in two] == [1, -signal.SIGTERM], error
