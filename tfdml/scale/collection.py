"""The embeddings of a collection of images, in shards on disk."""

from __future__ import annotations

import pathlib
import threading
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.parquet as pq

from tfdml.checks import check, check_fits
from tfdml.scale.checksums import CheckedFile, opened
from tfdml.scale.layout import (
    AGAIN,
    ANEW,
    CHANGED_FORMAT,
    FORMAT,
    LIST,
    MANIFEST,
    REMOVED,
    shard_names,
    written_by,
)

_COLUMNS = pa.schema([("id", pa.int64())] + [(n, pa.string()) for n in ("path", "label", "error")])
_TEXTS = ("model", "list")
_NUMBERS = ("dim", "images", "shard_size", "shards")
_CHUNK_BYTES = 2**25  # of float32 embeddings
_SAMPLED_SHARDS = 256  # read for a sample that fits them
_FILTERING_SECONDS = 30.0  # longest time of a condition
_SHOWN = 3  # missing shards named in an error


class Rows(NamedTuple):
    """Some images that have an embedding, in the order of their ids."""

    ids: np.ndarray  # (m,) int64
    embeddings: np.ndarray  # (m, dim) float32, finite

    def at(self, ids):
        """(n, dim) float32, the embeddings of ids; a KeyError if an image has none."""
        if not np.isin(ids, self.ids).all():
            raise KeyError(f"an image has no embedding. Received: ids={np.asarray(ids).tolist()}")
        return self.embeddings[np.searchsorted(self.ids, ids)]


class Collection:
    """A folder that `python -m tfdml.scale embed` writes, read shard by shard.

    A file is compared with its checksum in the manifest before its first use.

    Args:
        folder: Its path, with `manifest.json`, `list.parquet` and `shards/`.

    Attributes:
        folder: Its `pathlib.Path`.
        manifest: What its `manifest.json` says.
        files: {name: `CheckedFile`} of all shards, in order, and of the list.
        version: Number of times that `add`, `update` or `remove` changed it.
        model: Fingerprint of the model that made the embeddings.
        list: SHA-256 of the list of images.
        dim: Length of an embedding.
        images: Number of images, with those that could not be read.
        shard_size: Images of a shard.
        shards: Number of shards, with those that are not written yet.
    """

    def __init__(self, folder):
        expected = "a collection must be on a disk of this machine to be read; copy it there"
        check("://" not in str(folder), expected, folder=folder)
        self.folder = pathlib.Path(folder)
        self.manifest = manifest = _manifest_of(self.folder)
        self.model, self.list = (manifest[name] for name in _TEXTS)
        self.dim, self.images, self.shard_size, self.shards = (manifest[name] for name in _NUMBERS)
        self.version = len(manifest.get("changes", []))
        self._shards, known = shard_names(manifest), manifest.get("files", {})
        names = [*self._shards, LIST]
        remedy = ANEW if self.version else AGAIN
        self.files = {n: CheckedFile(self.folder / n, known.get(n), remedy) for n in names}

    def check_complete(self):
        """Raises a ValueError if shards are missing, which it counts."""
        paths = [self.folder / name for name in self._shards]
        missing = [path.name for path in paths if not path.is_file()]
        whole = f"{self.folder} must hold all of its {self.shards:,} shards"
        how = "let `python -m tfdml.scale embed` finish"
        expected = f"{whole}: {ANEW if self.version else how}"
        check(not missing, expected, missing=len(missing), first=", ".join(missing[:_SHOWN]))

    def check_model(self, fingerprint):
        """Raises a ValueError unless the model with this fingerprint made the embeddings."""
        models = {"model": fingerprint[:12], "made_by": self.model[:12]}
        made = "must have been made by this version of this model"
        check(fingerprint == self.model, f"the embeddings of {self.folder} {made}", **models)

    def shard(self, number):
        """The `Rows` of a shard; a ValueError if it is damaged, or not as the manifest says."""
        path = self.folder / self._shards[number]
        table = self.read(number, ["id", "embedding"])
        first = number * self.shard_size
        size = min(self.shard_size, self.images - first)
        ids = table["id"].to_numpy()
        in_order = np.array_equal(ids, np.arange(first, first + size))
        expected = f"{path} must hold the images {first:,} to {first + size - 1:,} in order"
        check(in_order, expected, rows=len(ids))
        vectors = table["embedding"].combine_chunks()
        present = vectors.is_valid()
        ids, vectors = ids[np.asarray(present)], vectors.filter(present)
        dims = pc.unique(pc.list_value_length(vectors)).to_pylist()
        expected = f"the embeddings of {path} must have the `dim` of the manifest"
        check(dims in ([], [self.dim]), expected, dim=self.dim, dims=dims)
        embeddings = np.asarray(vectors.flatten(), np.float32).reshape(-1, self.dim)
        return Rows(ids, embeddings)

    def table(self, number):
        """The images of a shard with an embedding: `pyarrow.Table` of id, path, label, vector."""
        rows = self.shard(number)
        texts = self.read(number, ["path", "label"]).take(rows.ids - number * self.shard_size)
        vectors = pa.FixedSizeListArray.from_arrays(rows.embeddings.reshape(-1), self.dim)
        columns = {"id": rows.ids, **{name: texts[name] for name in texts.column_names}}
        return pa.table({**columns, "vector": vectors})

    def readable(self):
        """(images,) booleans, which of the images have an embedding."""
        return self.columns("error")["error"].is_null().to_numpy()

    def chunks(self):
        """Yields the `Rows` of all shards, in parts of at most 32 MiB that cross their borders."""
        most, parts, held = max(1, _CHUNK_BYTES // (4 * self.dim)), [], 0
        for number in range(self.shards):
            rows = self.shard(number)
            for first in range(0, len(rows.ids), most):
                part = Rows(*(column[first : first + most] for column in rows))
                if held + len(part.ids) > most:
                    yield _joined(parts)
                    parts, held = [], 0
                parts.append(part)
                held += len(part.ids)
        if parts:
            yield _joined(parts)

    def all_rows(self):
        """The `Rows` of all images; a ValueError if they do not fit in the memory."""
        what = f"{self.folder} has no index (`python -m tfdml.scale index`), and"
        check_fits(4 * self.images * self.dim, what, images=self.images)
        none = Rows(np.empty(0, np.int64), np.empty((0, self.dim), np.float32))
        return _joined([none, *self.chunks()])

    def sample(self, count, seed):
        """The `Rows` of images drawn at random, from 256 shards if they have as many.

        Fewer than `count` come back where images could not be read.
        """
        rng = np.random.default_rng(seed)
        needed = max(_SAMPLED_SHARDS, -(-count // self.shard_size) + 1)  # the last may be short
        chosen = np.sort(rng.permutation(self.shards)[:needed])
        sizes = np.minimum(self.shard_size, self.images - chosen * self.shard_size)
        ends = np.concatenate([[0], np.cumsum(sizes)])
        quotas = np.diff(ends * min(count, ends[-1]) // ends[-1])
        drawn = []
        for number, quota in zip(chosen.tolist(), quotas.tolist(), strict=True):
            rows = self.shard(number)
            some = np.sort(rng.permutation(len(rows.ids))[:quota])
            drawn.append(Rows(*(column[some] for column in rows)))
        return _joined(drawn)

    def rows(self, ids):
        """As `Rows.at`, of all images."""
        ids = np.asarray(ids)
        found = np.empty((len(ids), self.dim), np.float32)
        for number in np.unique(ids // self.shard_size).tolist():
            asked = ids // self.shard_size == number
            found[asked] = self.shard(number).at(ids[asked])
        return found

    def columns(self, *names):
        """Columns of all images, in the order of ids, as a `pyarrow.Table`."""
        tables = [self.read(number, list(names)) for number in range(self.shards)]
        return pa.concat_tables(tables or [_COLUMNS.empty_table().select(list(names))])

    def matching(self, where, among="error is null"):
        """(m,) ids, ascending, of the images with an embedding that meet a condition in SQL.

        It may use the columns of the shards: `path`, `label` and those of the list of images. Files
        cannot be read by it, and it may take 30 seconds.
        """
        rows = self.dataset()
        with duckdb.connect(config={"enable_external_access": False}) as database:
            timer = threading.Timer(_FILTERING_SECONDS, database.interrupt)
            timer.start()
            try:
                images = database.from_arrow(rows).filter(among)
                kind = str(images.project(where).types[0])
                check(kind == "BOOLEAN", "`where` must be true or false", where=where, type=kind)
                return np.sort(images.filter(where).project("id").fetchnumpy()["id"])
            except duckdb.Error as error:
                limit = f"of at most {_FILTERING_SECONDS:g} s"
                expected = f"`where` must be a condition in SQL on columns of the images {limit}"
                cause = str(error).splitlines()[0]
                columns = ", ".join(rows.schema.names)
                received = f"where={where}, columns: {columns}"
                raise ValueError(f"{expected} ({cause}). Received: {received}") from error
            finally:
                timer.cancel()

    def dataset(self):
        """All rows and columns, as a `pyarrow.dataset.Dataset` in the order of ids."""
        for name in self._shards:
            self.files[name].check()
        paths = [str(self.folder / name) for name in self._shards]
        schemas = [pq.read_schema(path) for path in paths] or [_COLUMNS]
        return pyarrow.dataset.dataset(paths, schema=pa.unify_schemas(schemas))

    def present(self):
        """All columns but the embeddings of the images that were not removed: `pyarrow.Table`."""
        rows = self.dataset()
        columns = [name for name in rows.schema.names if name != "embedding"]
        field = pyarrow.dataset.field("error")
        return rows.to_table(columns=columns, filter=field.is_null() | (field != REMOVED))

    def changed_since(self, version):
        """(m,) ids, ascending, of rows that are new or have another embedding or none since."""
        ids = [np.empty(0, np.int64)]
        for number, name in enumerate(self._shards):
            if written_by(name) > version:
                rows = self.read(number, ["id", "version"])
                ids.append(rows.filter(pc.field("version") > version)["id"].to_numpy())
        return np.concatenate(ids)

    def read(self, number, columns=None):
        """Columns of a shard, as a `pyarrow.Table`; an OSError or ValueError names the file."""
        file = self.files[self._shards[number]]
        file.check()
        try:
            return pq.read_table(file.path, columns=columns, partitioning=None)
        except pa.ArrowException as error:
            # pyarrow below 26 cannot read lists of a fixed size if some are null.
            cause = f"{error}; pyarrow {pa.__version__}"
            raise ValueError(f"{file.path} is not a shard that can be read ({cause})") from error


def _manifest_of(folder):
    path = folder / MANIFEST
    if not path.is_file():
        written = "`python -m tfdml.scale embed` writes it"
        raise FileNotFoundError(f"there is no {path}: {written}")
    manifest = opened(path.read_bytes(), path, "embed into a new folder")
    missing = [name for name in ("format", *_TEXTS, *_NUMBERS) if name not in manifest]
    check(not missing, f"{path} is not the manifest of a collection", missing=missing)
    made_by = manifest["format"]
    expected = f"{path} must be of the format {FORMAT} or {CHANGED_FORMAT}"
    check(made_by in (FORMAT, CHANGED_FORMAT), expected, format=made_by)
    return manifest


def _joined(parts):
    """The `Rows` of several."""
    return Rows(*map(np.concatenate, zip(*parts, strict=True)))
