"""The embeddings that are scored: of the model, or of a file made by anything."""

import hashlib
import json
import pathlib
import zipfile
import zlib
from typing import Any, NamedTuple

import numpy as np

from tfdml import evaluation
from tfdml.checks import Bare, check
from tfdml.files import replacing
from tfdml.runs import scoring
from tfdml.runs.scoring.scored_images import Images
from tfdml.serving.exported import fingerprint


class Stored(NamedTuple):
    """What a file of embeddings holds."""

    embeddings: Any  # (n, width) floats
    labels: Any  # (n,) integers or texts
    queries: Any = None  # (n,) booleans
    ids: Any = None  # (n,) texts
    origin: Any = None  # JSON of {what: value}, of those that a model made


def read_embeddings(path):
    """The `Stored` embeddings of a file; a ValueError names another, or a damaged one."""
    expected = f"{path} must be a NumPy archive (.npz) with arrays `embeddings` and `labels`"
    try:
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


def write_embeddings(path, stored):
    arrays = {name: value for name, value in stored._asdict().items() if value is not None}
    with replacing(pathlib.Path(path)) as unfinished, unfinished.open("wb") as file:
        np.savez(file, **arrays)


class Embedded(NamedTuple):
    """Embeddings of images, as a task scores them."""

    embeddings: Any  # (n, dim) floats, as they are ranked
    images: Images
    model: Any  # `ScoredModel`
    levels: Any  # (n, number * dim) floats, as the model gives them
    number: int = 1  # of levels

    @property
    def labels(self):
        return self.images.labels

    def similarity(self, options, pairs=None):
        """The learned similarity of all rows to all rows, if `rank_by` asks for it; else None."""
        by_distance = options.rank_by == "distance"
        return None if by_distance else self.model.similarity("score_matrix", pairs)


def levels_of(options, model):
    """How many levels a model has, how many are scored, and the numbers of each, checked."""
    weights, width = options.level_weights, model.width
    most = len(weights or [1])
    if "embedding_dim" in model.recipe:
        # An export of the first numbers is shorter.
        most = max(1, width // (model.recipe["embedding_dim"] or width))
    levels = options.levels or most
    expectation = "`levels` must not exceed those of the model"
    check(levels <= most, expectation, levels=levels, model_levels=most)
    fit = weights is None or (len(weights) == levels > 1 and width % levels == 0)
    expectation = "`level_weights` must have one number for each level of a model with several"
    check(fit, expectation, level_weights=weights, levels=levels)
    dim = width // most
    fit = options.dims is None or (levels == 1 and options.dims <= dim)
    expectation = "`dims` must not exceed the embedding of a model of one level"
    check(fit, expectation, dims=options.dims, embedding_dim=dim, levels=levels)
    return most, levels, dim


def embed_images(options, model, images):
    """The `Embedded` images: those of the file `embeddings`, or embedded now and written there."""
    rows, path = model.stored and model.stored.embeddings, options.embeddings
    if path and model.version:
        split, boxes = images.split, images.split.boxes
        boxes = None if boxes is None else hashlib.sha256(boxes.tobytes()).hexdigest()
        origin = {"model": fingerprint(model.version), **images.identity(options), "boxes": boxes}
        origin |= {"crops": options.crops, "mirror": options.mirror}
        known = json.loads(str((model.stored and model.stored.origin) or "{}"))
        differing = [name for name in origin if known.get(name) != origin[name]]
        expected = f"{path} must have the embeddings of this model, images and options; name "
        expected += "another file, or delete it"
        check(not (model.stored and differing), expected, differing=differing)
    if rows is None:
        rows = scoring.embed(options, model, images.split)
        if path:
            labels = [*map(images.class_names.get, images.labels.tolist())]
            ids = split.images if split.holds_paths else images.ids(options)
            write_embeddings(path, Stored(rows, labels, images.queries, ids, json.dumps(origin)))
            print(f"Embeddings: {path}")
    return joined(options, model, images, rows)


def joined(options, model, images, rows):
    """The `Embedded` of what a model gives: all levels or a part of them, weighed."""
    _, levels, dim = levels_of(options, model)
    scored = embeddings = rows[:, : levels * dim]
    if options.dims is not None:
        embeddings = evaluation.first_dims(scored, options.dims)
    elif options.level_weights is not None:
        embeddings = evaluation.weigh_levels(scored, options.level_weights)
    return Embedded(embeddings, images, model, scored, levels)
