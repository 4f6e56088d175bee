"""The embeddings of a collection of images, in shards on disk."""

from __future__ import annotations

import importlib
import pathlib
from typing import Any, NamedTuple

import numpy as np

from tfdml.checks import check
from tfdml.scale import AGAIN, FORMAT, LIST, MANIFEST, SHARDS, shard_name
from tfdml.scale.checksums import CheckedFile, opened

_TEXTS = ("model", "list")
_NUMBERS = ("dim", "images", "shard_size", "shards")
_CHUNK_BYTES = 2**25  # of float32 embeddings
_SAMPLED_SHARDS = 256  # read for a sample that fits them
_SHOWN = 3  # missing shards named in an error


class Rows(NamedTuple):
    """Some images that have an embedding, in the order of their ids."""

    ids: np.ndarray  # (m,) int64
    embeddings: np.ndarray  # (m, dim) float32, finite
    labels: Any  # (m,) texts as a `pyarrow.Array`, null for images without a label


class Collection:
    """A folder that `python -m tfdml.scale embed` writes, read shard by shard.

    A file is compared with its checksum in the manifest before its first use.

    Args:
        folder: Its path, with `manifest.json`, `list.parquet` and `shards/`.

    Attributes:
        folder: Its `pathlib.Path`.
        model: Fingerprint of the model that made the embeddings.
        list: SHA-256 of the list of images.
        dim: Length of an embedding.
        images: Number of images, with those that could not be read.
        shard_size: Images of a shard.
        shards: Number of shards, with those that are not written yet.

    Raises:
        FileNotFoundError: If there is no manifest.
        ValueError: If the manifest is not one, is damaged or of another format, or the folder is a
            URL.
        ImportError: If pyarrow is not installed.
    """

    def __init__(self, folder):
        import_needed("pyarrow")
        expected = "a collection must be on a disk of this machine to be read; copy it there"
        check("://" not in str(folder), expected, folder=folder)
        self.folder = pathlib.Path(folder)
        manifest = _manifest_of(self.folder)
        self.model, self.list = (manifest[name] for name in _TEXTS)
        self.dim, self.images, self.shard_size, self.shards = (manifest[name] for name in _NUMBERS)
        self._checksums, self._checked = manifest.get("files", {}), {}

    def shard_path(self, number):
        """The path of a shard."""
        return self.folder / SHARDS / shard_name(number)

    def check_complete(self):
        """Raises a ValueError if shards are missing, which it counts, or the list is damaged."""
        missing = [i for i in range(self.shards) if not self.shard_path(i).is_file()]
        shown = ", ".join(self.shard_path(i).name for i in missing[:_SHOWN])
        whole = f"{self.folder} must hold all of its {self.shards:,} shards"
        expected = f"{whole}: let `python -m tfdml.scale embed` finish"
        check(not missing, expected, missing=len(missing), first=shown)
        self._opened_list().close()

    def check_model(self, fingerprint):
        """Raises a ValueError unless the model with this fingerprint made the embeddings."""
        models = {"model": fingerprint[:12], "made_by": self.model[:12]}
        expected = (
            f"the embeddings of {self.folder} must have been made by this version of this model"
        )
        check(fingerprint == self.model, expected, **models)

    def shard(self, number):
        """The `Rows` of a shard.

        Raises:
            FileNotFoundError: If it is not written yet.
            ValueError: If it is damaged, its rows are not as the manifest says, or an embedding is
                not finite.
        """
        path = self.shard_path(number)
        table = self._read(number, ["id", "embedding", "label"])
        first = number * self.shard_size
        size = min(self.shard_size, self.images - first)
        ids = table["id"].to_numpy()
        in_order = np.array_equal(ids, np.arange(first, first + size))
        expected = f"{path} must hold the images {first:,} to {first + size - 1:,} in order"
        check(in_order, expected, rows=len(ids))
        vectors = table["embedding"].combine_chunks()
        readable = vectors.is_valid()
        embeddings = self._embeddings_of(vectors.filter(readable), path)
        present = np.asarray(readable)
        finite = np.isfinite(embeddings).all(axis=1)
        wrong = ids[present][~finite][:_SHOWN].tolist()
        check(finite.all(), f"the embeddings of {path} must be finite", ids=wrong)
        return Rows(ids[present], embeddings, table["label"].combine_chunks().filter(readable))

    def _embeddings_of(self, vectors, path):
        """(m, dim) float32 of an array of lists, fixed in size or not, without nulls."""
        import pyarrow.compute as pc

        widths = pc.unique(pc.list_value_length(vectors)).to_pylist()
        expected = f"the embeddings of {path} must have the `dim` of the manifest"
        check(widths in ([], [self.dim]), expected, dim=self.dim, dims=widths)
        return np.asarray(vectors.flatten(), np.float32).reshape(-1, self.dim)

    def readable(self, number):
        """The ids of a shard that have an embedding."""
        table = self._read(number, ["id", "error"])
        return table["id"].to_numpy()[table["error"].is_null().to_numpy()]

    def unreadable(self, key):
        """The path of an image without an embedding, and the reason: two texts."""
        rows = self._read(key // self.shard_size, ["path", "error"])
        row = key % self.shard_size
        return rows["path"][row].as_py(), rows["error"][row].as_py()

    def count_readable(self):
        """The number of images that have an embedding, from the reasons why others have none."""
        shards = range(self.shards)
        return sum(self._read(number, ["error"])["error"].null_count for number in shards)

    def chunks(self):
        """Yields the `Rows` of all shards, in parts of at most 32 MiB that cross their borders."""
        import pyarrow as pa

        most, parts, held = max(1, _CHUNK_BYTES // (4 * self.dim)), [], 0
        for number in range(self.shards):
            rows = self.shard(number)
            for first in range(0, len(rows.ids), most):
                part = Rows(*(of[first : first + most] for of in rows))
                if parts and held + len(part.ids) > most:
                    yield _joined(parts, pa)
                    parts, held = [], 0
                parts.append(part)
                held += len(part.ids)
        if parts:
            yield _joined(parts, pa)

    def sample(self, count, seed):
        """The ids and embeddings of images drawn at random, from 256 shards if they have as many.

        Args:
            count: Number of images; fewer come back where images could not be read.
            seed: Integer >= 0.

        Returns:
            (m,) int64 in ascending order and (m, dim) float32.
        """
        rng = np.random.default_rng(seed)
        needed = max(_SAMPLED_SHARDS, -(-count // self.shard_size) + 1)  # the last may be short
        chosen = np.sort(rng.permutation(self.shards)[:needed])
        sizes = np.minimum(self.shard_size, self.images - chosen * self.shard_size)
        ends = np.concatenate([[0], np.cumsum(sizes)])
        quotas = np.diff(ends * min(count, ends[-1]) // ends[-1])
        drawn = []
        for number, quota in zip(chosen.tolist(), quotas.tolist(), strict=True):
            ids, embeddings, _ = self.shard(number)
            some = np.sort(rng.permutation(len(ids))[:quota])
            drawn.append((ids[some], embeddings[some]))
        return tuple(np.concatenate(parts) for parts in zip(*drawn, strict=True))

    def rows(self, ids):
        """(n, dim) float32, the embeddings of ids.

        Raises:
            KeyError: If an image has no embedding.
        """
        ids = np.asarray(ids)
        found = np.empty((len(ids), self.dim), np.float32)
        for number in np.unique(ids // self.shard_size).tolist():
            rows, asked = self.shard(number), ids // self.shard_size == number
            if not np.isin(ids[asked], rows.ids).all():
                raise KeyError(f"an image has no embedding. Received: ids={ids[asked].tolist()}")
            found[asked] = rows.embeddings[np.searchsorted(rows.ids, ids[asked])]
        return found

    def files(self):
        """Yields the list and the shards as `CheckedFile`s."""
        for name in [LIST, *(f"{SHARDS}/{shard_name(number)}" for number in range(self.shards))]:
            yield self._file(name)

    def _file(self, name):
        if name not in self._checked:
            known = self._checksums.get(name)
            self._checked[name] = CheckedFile(self.folder / name, known, AGAIN)
        return self._checked[name]

    def _read(self, number, columns):
        """Columns of a shard, as a `pyarrow.Table`; an OSError or ValueError names the file."""
        parquet, arrow = import_needed("pyarrow.parquet"), import_needed("pyarrow")
        file = self._file(f"{SHARDS}/{shard_name(number)}")
        file.check()
        try:
            return parquet.read_table(file.path, columns=columns, partitioning=None)
        except arrow.ArrowException as error:
            # pyarrow below 26 cannot read lists of a fixed size if some are null.
            cause = f"{error}; pyarrow {arrow.__version__}"
            raise ValueError(f"{file.path} is not a shard that can be read ({cause})") from error

    def listed(self, *columns):
        """Yields parts of `list.parquet`, in the order of ids, as `pyarrow.RecordBatch`es."""
        with self._opened_list() as file:
            yield from file.iter_batches(columns=list(columns))

    def _opened_list(self):
        parquet, arrow = import_needed("pyarrow.parquet"), import_needed("pyarrow")
        path = self.folder / LIST
        self._file(LIST).check()
        try:
            file = parquet.ParquetFile(path)
        except arrow.ArrowException as error:
            raise ValueError(f"{path} is damaged ({error}): {AGAIN}") from error
        rows = file.metadata.num_rows
        expected = f"{path} must list the images of the manifest"
        check(rows == self.images, expected, images=self.images, rows=rows)
        return file


def import_needed(name):
    """A module of the extra `scale`.

    Raises:
        ImportError: If it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = {"faiss": "faiss-cpu"}.get(name, name.partition(".")[0])
        needed = f"large collections need {package}: pip install -e '.[scale]'"
        raise ImportError(needed) from error


def _manifest_of(folder):
    """The manifest of a folder, checked."""
    path = folder / MANIFEST
    if not path.is_file():
        written = "`python -m tfdml.scale embed` writes it"
        raise FileNotFoundError(f"there is no {path}: {written}")
    manifest = opened(path.read_bytes(), path, "embed into a new folder")
    try:
        made_by = manifest["format"]
        whole = all(type(manifest[name]) is int and manifest[name] > 0 for name in _NUMBERS)
        texts = all(type(manifest[name]) is str for name in _TEXTS)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not the manifest of a collection ({error!r})") from error
    check(made_by == FORMAT, f"{path} must be of the format {FORMAT}", format=made_by)
    numbers = {name: manifest[name] for name in _NUMBERS}
    check(whole and texts, f"{path} must have positive numbers and texts", **numbers)
    needed = -(-manifest["images"] // manifest["shard_size"])
    expected = f"{path} must have as many shards as its images fill"
    check(manifest["shards"] == needed, expected, **numbers)
    return manifest


def _joined(parts, arrow):
    if len(parts) == 1:
        return parts[0]
    ids, embeddings, labels = zip(*parts, strict=True)
    return Rows(np.concatenate(ids), np.concatenate(embeddings), arrow.concat_arrays(labels))
