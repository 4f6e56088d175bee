"""Files of embeddings, or features, made by a model or by anything."""

import os
import pathlib
import zipfile
import zlib
from typing import Any, NamedTuple

import numpy as np

import pipelines
from pipelines.datasets.image_list import first_half
from tfdml.checks import Bare, check
from tfdml.files import replacing
from tfdml.runs.recipe import FEATURES


class Stored(NamedTuple):
    """What a file of embeddings holds."""

    embeddings: Any  # (n, width) floats
    labels: Any  # (n,) integers or texts
    queries: Any = None  # (n,) booleans
    ids: Any = None  # (n,) texts
    origin: Any = None  # JSON of {what: value}, of those that a model made


def read_embeddings(path):
    """The `Stored` embeddings of a file; a ValueError names another, or a damaged one."""
    expected = f"{path} must be a NumPy archive (.npz) with arrays `embeddings` and `labels`, or a "
    expected += "Parquet table (.parquet) with such columns"
    try:
        if str(path).endswith(".parquet"):
            arrays = _columns(path)
        else:
            with np.load(path) as archive:
                arrays = {n: archive[n] for n in archive.files if n in Stored._fields}
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no {path}: {expected}") from None
    except (EOFError, ValueError, AttributeError, TypeError, NotImplementedError):
        raise ValueError(expected) from None
    except (zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} is damaged ({error}). Write it again") from None
    check({"embeddings", "labels"} <= set(arrays), expected, has=sorted(arrays))
    rows = arrays["embeddings"]
    valid = rows.ndim == 2 and rows.size and rows.dtype.kind == "f"
    expected = f"`embeddings` of {path} must be floats of shape (n, dim)"
    check(valid, expected, shape=rows.shape, dtype=Bare(rows.dtype))
    finite = np.isfinite(rows).all(axis=1)
    wrong = {"rows_not_finite": int((~finite).sum()), "first": int(finite.argmin())}
    check(finite.all(), f"`embeddings` of {path} must be finite", **wrong)
    for name, kinds in {"labels": "iuU", "queries": "b", "ids": "U"}.items():
        if name in arrays:
            what = {"iuU": "integers or texts", "b": "booleans", "U": "texts"}[kinds]
            array = arrays[name]
            valid = array.shape == rows.shape[:1] and array.dtype.kind in kinds
            received = {"rows": len(rows), "shape": array.shape, "dtype": Bare(array.dtype)}
            check(valid, f"`{name}` of {path} must be {what}, one for each row", **received)
    queries = arrays.get("queries", np.arange(len(rows)) < 1)
    valid = queries.any() and (len(rows) == 1 or not queries.all())
    expected = f"`queries` of {path} must be true for some rows and false for others"
    check(valid, expected, rows=len(rows), true=int(queries.sum()))
    classes = len(np.unique(arrays["labels"]))
    expected = f"`labels` of {path} must be of 2 classes or more: in one, all rows are right"
    check(classes > 1, expected, classes=classes)
    return Stored(**arrays)


def _columns(path):
    """{name: array} of a Parquet table."""
    import pyarrow as pa  # an optional dependency
    import pyarrow.parquet as pq

    table, arrays = pq.read_table(path), {}
    for name in set(table.column_names).intersection(Stored._fields):
        column = table[name].combine_chunks()
        if pa.types.is_fixed_size_list(column.type) and not column.null_count:
            arrays[name] = column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)
        else:
            arrays[name] = np.array(column.to_pylist())
    return arrays


def dataset_of_features(name):
    """The `Dataset` of a file of features; the first half of its classes is for training."""
    stored = read_embeddings(os.path.expanduser(name.removeprefix(FEATURES)))
    classes, labels = np.unique(stored.labels, return_inverse=True)
    names = dict(enumerate(map(str, classes.tolist())))
    split = pipelines.Split(None, labels, names, inputs=stored.embeddings.astype("float32"))
    train = first_half(labels) == "train"
    return pipelines.Dataset(name, split.subset(train), split.subset(~train), image_size=())


def write_embeddings(path, stored):
    arrays = {name: value for name, value in stored._asdict().items() if value is not None}
    with replacing(pathlib.Path(path)) as unfinished, unfinished.open("wb") as file:
        np.savez(file, **arrays)
