"""Embeds pieces of a collection on a Ray cluster, or with all GPUs of this machine."""

import contextlib
import importlib
import itertools
import logging
import os
import pathlib
import socket
import statistics
import tempfile
from typing import Any

import numpy as np
import pyarrow as pa

from tfdml import scale
from tfdml.checks import check
from tfdml.quiet import import_tensorflow, silent
from tfdml.scale.storage import fetch_all
from tfdml.scale.writing import rows_of

try:
    importlib.import_module("ray.data")
    ray: Any = importlib.import_module("ray")  # an optional dependency, without types
except ImportError as error:
    raise ImportError("needs ray: pip install -e '.[scale,ray]'") from error
_PIECES = 10_000  # of one execution of Ray Data, whose paths are all in memory
_SECONDS_TO_ANSWER = 10
_THREADS = 4  # most cores of an actor on CPUs: each holds the model in memory
_models = {}  # in a worker: {model sent to it: `ImageModel`}


@contextlib.contextmanager
def connected(address=None):
    """Within it, this process is connected to a Ray cluster; None starts one."""
    _check_answers(address)
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    with silent(2):  # it tells the level of its logs
        ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    context.execution_options.preserve_order = True
    try:
        _actors()
        yield
    finally:
        ray.shutdown()


def embedded(version, pieces):
    """As `writing.embedded`, on Ray, whose object store bounds the images in memory.

    One actor per GPU embeds images, which tasks on CPUs read. If there are no GPUs, actors on CPUs
    do both. The model is sent to the workers, who must be able to open the paths.
    """
    try:
        files = (path for path in version.rglob("*") if path.is_file())
        model = ray.put({path.relative_to(version).as_posix(): path.read_bytes() for path in files})
        pieces = iter(pieces)
        while some := list(itertools.islice(pieces, _PIECES)):
            yield from _execution(model, some)
    except ray.exceptions.RayError as error:
        raise RuntimeError(f"Ray failed ({_cause(error)})") from error


def _check_answers(address):
    """Raises an OSError if nothing answers at an address HOST:PORT, which Ray tries for minutes."""
    host, _, port = (address or "").rpartition(":")
    if not host or "://" in address:
        return
    try:
        socket.create_connection((host, int(port)), timeout=_SECONDS_TO_ANSWER).close()
    except (OSError, ValueError) as error:
        raise OSError(f"no Ray cluster answers at {address} ({error})") from error


def _execution(model, pieces):
    rows = ray.data.from_arrow([pa.table({"id": ids, "path": paths}) for ids, paths in pieces])
    count, threads, resources = _actors()
    size = max(len(ids) for ids, _ in pieces)  # Ray wants a number for GPUs
    options = {"batch_size": size, "batch_format": "numpy", "fn_kwargs": {"model": [model]}}
    if threads is None:  # the actors are busy with their GPUs
        rows = rows.map_batches(_read, num_cpus=1, **options)
    rows = rows.map_batches(
        _Embedder,
        compute=ray.data.ActorPoolStrategy(size=count),
        fn_constructor_args=[threads],
        **resources,
        **options,
    )
    for batch in rows.iter_batches(batch_size=None, batch_format="numpy"):
        yield rows_of(batch["id"], batch["embedding"], [each or None for each in batch["error"]])


def _actors():
    """Their number, their threads if they compute on CPUs, and what each of them occupies."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    gpus = sum(int(node.get("GPU", 0)) for node in nodes)
    if gpus:
        return gpus, None, {"num_cpus": 0, "num_gpus": 1}
    cpus = [int(node["CPU"]) for node in nodes if node.get("CPU", 0) >= 1]
    check(cpus, "the nodes of the Ray cluster must have GPUs or CPUs", nodes=len(nodes))
    threads = min(_THREADS, statistics.median_high(cpus))
    return sum(each // threads for each in cpus), threads, {"num_cpus": threads}


class _Embedder:
    def __init__(self, threads):
        self.threads = threads

    def __call__(self, batch, model):
        loaded = _loaded(*model, threads=self.threads)
        batch = batch if "images" in batch else _read(batch, model, self.threads)
        rows, problems = loaded.embed(batch["images"], batch["error"])
        return {"id": batch["id"], "embedding": rows, "error": _texts(problems)}


def _read(batch, model, threads=1):
    images, problems = _loaded(*model, threads=threads).read(fetch_all(batch["path"]))
    return {"id": batch["id"], "images": np.asarray(images), "error": _texts(problems)}


def _texts(problems):
    return np.array([problem or "" for problem in problems], object)


def _loaded(model, *, threads):
    """The model that was sent to this worker; without a number of threads on its GPU."""
    if model not in _models:
        if threads:  # TensorFlow reads these when it is imported
            pools = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
            os.environ.update(dict.fromkeys(pools, str(threads)), CUDA_VISIBLE_DEVICES="-1")
        import_tensorflow()
        with tempfile.TemporaryDirectory() as folder:
            for name, content in ray.get(model).items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            _models[model] = scale.image_model.ImageModel(pathlib.Path(folder))
    return _models[model]


def _cause(error):
    """The error of a worker, which ends its traceback, or else the first line of Ray's own."""
    before, _, last = str(error).rpartition("\n\nThe above exception was the direct cause")
    lines = (before or last).strip().splitlines()
    return lines[-1 if before else 0]
