"""The embeddings that are scored: of the model, or read from a file."""

import hashlib
import json
import pathlib
import zipfile
import zlib
from typing import Any, NamedTuple

import numpy as np

import pipelines
import tfdml
from tfdml.checks import Bare, check
from tfdml.files import replacing
from tfdml.runs.images import embed_split
from tfdml.runs.scoring.scored_images import Images
from tfdml.serving.exported import fingerprint


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


class Stored(NamedTuple):
    """What a file of embeddings holds."""

    embeddings: Any  # (n, width) floats
    labels: Any  # (n,) integers or texts
    queries: Any = None  # (n,) booleans
    ids: Any = None  # (n,) texts
    origin: Any = None  # JSON of {what: value}, of those that `embedded` wrote

    def images(self):
        """The `Images`, of which only names are known."""
        names, labels = np.unique(self.labels, return_inverse=True)
        if names.dtype.kind != "U":
            names, labels = None, self.labels
        ids = np.arange(len(labels)).astype(str) if self.ids is None else self.ids
        names = None if names is None else dict(enumerate(names.tolist()))
        return Images(pipelines.Split(ids, labels, names), self.queries)


def read_embeddings(path):
    """The `Stored` embeddings of a file.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is no such file, or damaged; names it.
    """
    expected = f"{path} must be a NumPy archive (.npz) with arrays `embeddings` and `labels`"
    try:
        with np.load(path) as archive:
            arrays = {n: archive[n] for n in archive.files if n in Stored._fields}
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
    check(valid, f"`queries` of {path} must be true for some rows and false for others")
    return Stored(**arrays)


def levels_of(options, model):
    """How many levels a model has, how many are scored, and the numbers of each.

    Raises:
        ValueError: If the options ask for more than its embeddings have.
    """
    weights, width = options.level_weights, model.width
    most = len(weights or [1])
    if "embedding_dim" in model.recipe:
        # An export of the first numbers is shorter.
        most = max(1, width // (model.recipe["embedding_dim"] or width))
    levels = options.levels or most
    expectation = "`levels` must not exceed those of the model"
    check(levels <= most, expectation, levels=levels, of_model=most)
    fit = weights is None or (len(weights) == levels > 1 and width % levels == 0)
    expectation = "`level_weights` must have one number for each level of a model with several"
    check(fit, expectation, level_weights=weights, levels=levels)
    dim = width // most
    fit = options.dims is None or (levels == 1 and options.dims <= dim)
    expectation = "`dims` must not exceed the embedding of a model of one level"
    check(fit, expectation, dims=options.dims, embedding_dim=dim, levels=levels)
    return most, levels, dim


def embed_images(options, model, images):
    """The `Embedded` images: those of the file `embeddings`, or embedded now and written there.

    Raises:
        ValueError: If the file has the embeddings of others.
    """
    if model.version is None:
        return joined(options, model, images, model.stored.embeddings)
    path, origin = options.embeddings, None
    if path:
        boxes = images.split.boxes
        boxes = None if boxes is None else hashlib.sha256(boxes.tobytes()).hexdigest()
        origin = {"model": fingerprint(model.version), **images.identity(options), "boxes": boxes}
        origin |= {"crops": options.crops, "mirror": options.mirror}
    if model.stored:
        known = json.loads(str(model.stored.origin or "{}"))
        differing = [name for name in origin or () if known.get(name) != origin[name]]
        expectation = f"{path} must have the embeddings of this model, images and options"
        check(not differing, f"{expectation}; name another file, or delete it", differing=differing)
        return joined(options, model, images, model.stored.embeddings)
    rows = embed(options, model, images.split)
    if path:
        places = np.unique(images.labels, return_inverse=True)[1]
        arrays = {"embeddings": rows, "labels": np.array(images.split.names)[places]}
        arrays |= {} if images.queries is None else {"queries": images.queries}
        ids = images.split.images if images.split.holds_paths else images.ids(options)
        with replacing(pathlib.Path(path)) as unfinished, unfinished.open("wb") as file:
            np.savez(file, **arrays, ids=np.array(ids), origin=json.dumps(origin))
        print(f"Embeddings: {path}")
    return joined(options, model, images, rows)


def joined(options, model, images, rows):
    """The `Embedded` of what a model gives: all levels or a part of them, weighed."""
    _, levels, dim = levels_of(options, model)
    scored = embeddings = rows[:, : levels * dim]
    if options.dims is not None:
        embeddings = tfdml.evaluation.first_dims(scored, options.dims)
    elif options.level_weights is not None:
        embeddings = tfdml.evaluation.weigh_levels(scored, options.level_weights)
    return Embedded(embeddings, images, model, scored, levels)


def embed(options, model, split, signature=None):
    """(n, width) floats, the embeddings of the images of a `Split`, in order, of all levels.

    `signature` is that of other weights of the same model; its own if None.
    """
    levels, _, dim = levels_of(options, model)
    kind = {"crops": options.crops, "mirror": options.mirror, "batch_size": options.batch_size}
    signature, reading = signature or model.signatures["embed_images"], model.preprocessing
    return embed_split(signature, split, reading, width=levels * dim, levels=levels, **kind)
