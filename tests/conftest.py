import ctypes
import gc
import os
import pathlib
import sys

import in_chromium
import numpy as np
import pytest

# Each worker of pytest-xdist has a core of its own; also read by the processes that tests start.
for _name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# oneDNN keeps every kernel that it compiled, half a gigabyte. `.ci/full` tests with it too.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
# XLA compiles the same operations without optimising its code, which `.ci/full` tests too.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")


gc.disable()  # until the modules of the tests, which stay, are imported


def pytest_collection_finish():
    """Spares every later garbage collection the modules and the tests, which stay."""
    gc.collect()
    gc.freeze()
    gc.enable()


_GROWTH = 100  # MB of this process that are worth freeing
_resident = 0  # after `_free` did


def _megabytes():
    """MB of this process in memory."""
    pages = pathlib.Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6


def _free():
    """Gives back the memory of models and of their graphs, and what is free of the heap."""
    global _resident
    linux = sys.platform == "linux"
    if linux and _megabytes() < _resident + _GROWTH:
        return
    if "tensorflow" in sys.modules:
        # TensorFlow registers every traced custom gradient for good, and with it its graph.
        from tensorflow.python.framework import ops

        registered = ops.gradient_registry._registry
        for name in [name for name in registered if name.startswith("CustomGradient-")]:
            del registered[name]
    if "keras" in sys.modules:
        sys.modules["keras"].backend.clear_session()
    if linux:
        ctypes.CDLL(None).malloc_trim(0)
        _resident = _megabytes()


@pytest.fixture(autouse=True, scope="module")
def _freed_by_file():
    yield
    _free()


@pytest.fixture
def freed():
    """Frees what a test of a large network leaves behind."""
    yield
    _free()


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory):
    """Keeps what is remembered of images out of the folder of the user, in processes too."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    yield
    os.environ.pop("XDG_CACHE_HOME")
    if before is not None:
        os.environ["XDG_CACHE_HOME"] = before


@pytest.fixture(scope="module")
def without_xla():
    """Models whose compilation is left to Keras train without XLA, which takes most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("keras.src.trainers.trainer.model_supports_jit", lambda model: False)
        yield


@pytest.fixture(scope="module")
def loaded_once():
    """An exported model that several tests or programs read is loaded once, wherever it lies."""
    import tensorflow as tf

    from tfdml.serving.exported import fingerprint

    load, loaded = tf.saved_model.load, {}

    def load_once(path):
        content = fingerprint(pathlib.Path(path))
        if content not in loaded:
            loaded[content] = load(path)
        return loaded[content]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tf.saved_model, "load", load_once)
        yield


@pytest.fixture(scope="module")
def few_digits():
    """The digits have a quarter of their test images: a sixteenth of the pairs."""
    from small_runs import few_digits

    with few_digits():
        yield


@pytest.fixture
def without_figures(monkeypatch):
    """Reports have no figures, most of their time, where the test is of what else they say."""
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *_, **__: None)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def data_folder():
    """The folder named by TFDML_DATA: tfds/, cars196/ and weights/ (CONTRIBUTING.md, Test data)."""
    folder = os.environ.get("TFDML_DATA")
    if not folder:
        pytest.skip("needs TFDML_DATA")
    path = pathlib.Path(folder).expanduser().resolve()
    assert path.is_dir(), f"TFDML_DATA names no folder: {path}"
    return path


@pytest.fixture(scope="module")
def chromium():
    """A driver of a headless Chromium; skips the test where there is none."""
    driver = in_chromium.start()
    yield driver
    driver.quit()
