"""Embeds pieces of a collection on a Ray cluster, or with all GPUs of this machine."""

import itertools
import logging
import os
import pathlib
import tempfile

import numpy as np
import pyarrow as pa
import ray
import ray.data

from tfdml.quiet import import_tensorflow
from tfdml.scale.collection import rows_of

_PIECES = 10_000  # of one execution of Ray Data, whose paths are all in memory
_THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
_models = {}  # in a worker: {model sent to it: `ImageModel`}


def embedded(version, pieces, *, address=None):
    """Embeds images on Ray; its object store bounds how many of them are in memory at once.

    Tasks on CPUs read images, and actors embed them: one per GPU, or one per two CPUs if there are
    no GPUs. Ray repeats the work of processes and machines that die.

    Args:
        version: `pathlib.Path` of the model's version, which is sent to the workers.
        pieces: Iterable of `(ids, paths)`, arrays and lists of equal lengths. The workers must be
            able to open the paths.
        address: Of a running cluster, or `auto` for that of this machine; None starts one.

    Yields:
        Tables of `rows_of`, in the order of the pieces.

    Raises:
        RuntimeError: If Ray fails.
        OSError: If there is no cluster, or an image cannot be fetched.
    """
    ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    context.execution_options.preserve_order = True
    try:
        model = ray.put(_files(version))
        pieces = iter(pieces)
        while some := list(itertools.islice(pieces, _PIECES)):
            yield from _execution(model, some)
    except ray.exceptions.RayError as error:
        raise RuntimeError(f"Ray failed ({_cause(error)})") from error
    finally:
        ray.shutdown()


def _execution(model, pieces):
    images = ray.data.from_arrow([pa.table({"id": ids, "path": paths}) for ids, paths in pieces])
    resources = ray.cluster_resources()
    gpus = int(resources.get("GPU", 0))
    actors = gpus or max(1, int(resources["CPU"]) // 2)
    whole = {"batch_size": None, "batch_format": "numpy", "num_cpus": 1}
    # Another strategy than that of the actors keeps Ray from reading in them too.
    read = images.map_batches(
        _read, fn_kwargs={"model": [model]}, scheduling_strategy="SPREAD", **whole
    )
    rows = read.map_batches(
        _Embedder,
        fn_constructor_args=[[model], bool(gpus)],
        compute=ray.data.ActorPoolStrategy(size=actors),
        num_gpus=1 if gpus else 0,
        **whole,
    )
    for batch in rows.iter_batches(batch_size=None, batch_format="numpy"):
        yield rows_of(batch["id"], batch["embedding"], [each or None for each in batch["error"]])


def _read(batch, model):
    images, problems = _loaded(*model, gpu=False).read(list(batch["path"]))
    return {"id": batch["id"], "images": np.asarray(images), "error": _texts(problems)}


class _Embedder:
    def __init__(self, model, gpu):
        self.model = _loaded(*model, gpu=gpu)

    def __call__(self, batch):
        problems = [each or None for each in batch["error"]]
        rows, problems = self.model.embed(batch["images"], problems)
        return {"id": batch["id"], "embedding": rows, "error": _texts(problems)}


def _texts(problems):
    return np.array([problem or "" for problem in problems], object)


def _files(version):
    """{path in a version: bytes}"""
    files = (path for path in version.rglob("*") if path.is_file())
    return {path.relative_to(version).as_posix(): path.read_bytes() for path in files}


def _loaded(model, *, gpu):
    """The model that was sent to this worker as an object of Ray."""
    if model not in _models:
        if not gpu:  # one CPU
            os.environ.update(dict.fromkeys(_THREADS, "1"), CUDA_VISIBLE_DEVICES="-1")
        import_tensorflow()
        from tfdml.scale.model import ImageModel

        with tempfile.TemporaryDirectory() as folder:
            for name, content in ray.get(model).items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            _models[model] = ImageModel(pathlib.Path(folder))
    return _models[model]


def _cause(error):
    """The last line of an error of Ray, which ends with that of the worker."""
    return str(error).strip().splitlines()[-1]
