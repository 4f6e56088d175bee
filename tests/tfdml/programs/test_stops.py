"""What ends a run before its last step, and what it says."""

import signal
import threading

import programs
import pytest
import tensorflow as tf
from small_runs import SMALL, UNTRAINED, rejection, write_images

import tfdml
from tfdml import runs
from tfdml.programs import train


def test_a_run_that_diverges_is_rejected_and_saves_no_weights(tmp_path):
    options = [*SMALL, "--learning_rate", "1e38", "--run", "x"]
    options += ["--steps", "1", "--checkpoint_every", "1", "--optimizer", "sgd"]
    message = rejection(*options, cwd=tmp_path)
    assert "not finite at step 1; the loss diverged: lower the learning rate" in message
    assert not list(tmp_path.rglob("*.keras"))
    assert not (tmp_path / "saved_models" / "x").exists()


def test_an_image_lost_in_training_is_named(tmp_path, monkeypatch):
    photos = write_images(tmp_path / "photos", dict.fromkeys("abcd", 3))
    lost = photos / "a" / "1.png"

    class Losing(tfdml.callbacks.Checkpoint):
        def on_epoch_end(self, epoch, logs=None):
            super().on_epoch_end(epoch, logs)
            lost.unlink(missing_ok=True)

    monkeypatch.setattr(tfdml.callbacks, "Checkpoint", Losing)
    data = ["--dataset", "folder", "--data_dir", photos, "--image_size", "16", "--run", "x"]
    options = ["--classes_per_batch", "2", "--steps", "10000", "--checkpoint_every", "5"]
    options += ["--cache", "off"]  # or it is in memory
    message = rejection(*data, *options, cwd=tmp_path)
    assert f"error: {lost} cannot be read (missing)" in message
    assert message.endswith("Go on with: tfdml-train --run x --resume")
    assert (tmp_path / "runs" / "x" / "checkpoint.keras").is_file()


def test_a_lack_of_memory_in_training_says_what_needs_less(tmp_path, monkeypatch):
    def exhausted(*arguments):
        message = "OOM when allocating tensor with shape[9,9]"
        raise tf.errors.ResourceExhaustedError(None, None, message)

    monkeypatch.setattr(runs, "build_model", lambda *_: UNTRAINED)
    monkeypatch.setattr(train, "fit", exhausted)
    message = rejection(*SMALL, "--run", "x", cwd=tmp_path)
    assert "shape[9,9]. A new run with a smaller batch or --micro_batch needs less" in message


@pytest.fixture
def interrupts():
    """Ctrl-C raises KeyboardInterrupt, as in a process of its own."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler


def interrupted(*arguments):
    signal.raise_signal(signal.SIGINT)


def interrupted_in_another_error(*arguments):
    try:
        interrupted()
    except KeyboardInterrupt as error:
        raise RuntimeError("what TensorFlow makes of it") from error


@pytest.mark.parametrize("fit", [interrupted, interrupted_in_another_error])
@pytest.mark.usefixtures("interrupts")
def test_ctrl_c_says_how_to_go_on_in_whatever_it_ends(fit, tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "build_model", lambda *_: UNTRAINED)
    monkeypatch.setattr(train, "fit", fit)
    result = programs.run(train.main, *SMALL, "--run", "my run", cwd=tmp_path)
    assert result.code == 130
    assert result.err.endswith("\nStopped. Go on with: tfdml-train --run 'my run' --resume\n")
    assert (tmp_path / "runs" / "my run" / "config.yaml").is_file()


@pytest.mark.usefixtures("interrupts")
def test_a_run_trains_in_a_thread_that_hears_no_signal(tmp_path, monkeypatch):
    reached = threading.Event()

    def fit(*arguments):
        reached.set()
        raise SystemExit

    monkeypatch.setattr(runs, "build_model", lambda *_: UNTRAINED)
    monkeypatch.setattr(train, "fit", fit)
    arguments = [train.main, *SMALL, "--run", "x"]
    thread = threading.Thread(target=programs.run, args=arguments, kwargs={"cwd": tmp_path})
    thread.start()
    thread.join()
    assert reached.is_set()


@pytest.mark.usefixtures("interrupts")
def test_another_error_in_training_is_no_ctrl_c(tmp_path, monkeypatch):
    def broken(*arguments):
        raise RuntimeError("a defect")

    monkeypatch.setattr(runs, "build_model", lambda *_: UNTRAINED)
    monkeypatch.setattr(train, "fit", broken)
    with pytest.raises(RuntimeError, match="a defect"):
        programs.run(train.main, *SMALL, "--run", "x", cwd=tmp_path)
