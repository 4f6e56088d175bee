"""The images of a search in a folder, their index, and the archive that keeps both."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, NamedTuple

import numpy as np

from tfdml.checks import check
from tfdml.evaluation.faiss_index import load_faiss
from tfdml.files import replacing
from tfdml.search.picture_files import RejectedError, Stamp

faiss = load_faiss()
_FORMAT = 1  # of the archive


class Entry(NamedTuple):
    """An image of the index."""

    name: str  # path relative to the folder of images, with slashes
    stamp: Stamp  # of the file that was embedded
    format: str  # a key of `picture_files.MIME_TYPES`
    width: int  # pixels
    height: int

    @property
    def folder(self):
        """The folder of the file, relative to that of the images."""
        return self.name.rpartition("/")[0]


class LeftOut(NamedTuple):
    """A file that the model cannot read as an image."""

    stamp: Stamp
    cause: str  # a sentence


@dataclasses.dataclass(frozen=True)
class Catalogue:
    """Images and their embeddings by id; ids are never reused. Changes return another catalogue."""

    index: Any  # of faiss, by ids, with all embeddings
    entries: dict = dataclasses.field(default_factory=dict)  # {id: `Entry`}
    next_id: int = 0
    left_out: dict = dataclasses.field(default_factory=dict)  # {name: `LeftOut`}

    def entry(self, key):
        """The `Entry` of an id; a `RejectedError` with 404 if there is none."""
        if key not in self.entries:
            raise RejectedError(f"There is no image with this id. Received: id={key}", status=404)
        return self.entries[key]

    def rows(self, ids):
        """(n, dim) float32, the embeddings of ids."""
        return self.index.reconstruct_batch(np.asarray(ids, np.int64))

    def nearest(self, row, count, where=""):
        """The ids of the images nearest to one (dim,) row, at most `count`, and their distances."""
        if where:
            raise RejectedError("`where` needs a collection of `python -m tfdml.scale`")
        squared, ids = self.index.search(row[None], max(1, min(count, len(self.entries))))
        found = ids >= 0
        return ids[found], np.sqrt(squared[found].astype(np.float64))

    def matching(self, files):
        """The catalogue without what is gone or changed, and what it lacks of {name: `Stamp`}."""
        entries = {
            key: each for key, each in self.entries.items() if files.get(each.name) == each.stamp
        }
        left_out = {
            name: why for name, why in self.left_out.items() if files.get(name) == why.stamp
        }
        known = {each.name for each in entries.values()} | left_out.keys()
        new = {name: stamp for name, stamp in files.items() if name not in known}
        if entries == self.entries and left_out == self.left_out:
            return self, new
        index, gone = faiss.clone_index(self.index), self.entries.keys() - entries.keys()
        index.remove_ids(faiss.IDSelectorBatch(np.array([*gone], np.int64)))
        return Catalogue(index, entries, self.next_id, left_out), new

    def with_more(self, files):
        """The catalogue with more files: {name: `LeftOut`, or (`Entry`, embedding)}."""
        left_out = {name: file for name, file in files.items() if isinstance(file, LeftOut)}
        pairs = [file for name, file in files.items() if name not in left_out]
        ids, index = range(self.next_id, self.next_id + len(pairs)), self.index
        if pairs:
            index = faiss.clone_index(index)
            index.add_with_ids(np.stack([row for _, row in pairs]), np.array(ids))
        entries = {**self.entries, **{i: each for i, (each, _) in zip(ids, pairs, strict=True)}}
        return Catalogue(index, entries, ids.stop, {**self.left_out, **left_out})

    def save(self, path, fingerprint):
        """Writes a file in one step, with the fingerprint of the model that made the rows."""
        path.parent.mkdir(parents=True, exist_ok=True)
        images = {name: getattr(self, name) for name in ("entries", "next_id", "left_out")}
        texts = {"about": {"format": _FORMAT, "fingerprint": fingerprint}, "catalogue": images}
        arrays: Any = {
            name: np.frombuffer(json.dumps(text).encode(), np.uint8) for name, text in texts.items()
        }
        with replacing(path) as unfinished, open(unfinished, "wb") as file:
            np.savez(file, rows=faiss.serialize_index(self.index), **arrays)


def empty(dim):
    """The `Catalogue` of no images, for embeddings of `dim` numbers."""
    return Catalogue(faiss.index_factory(dim, "IDMap2,Flat"))


def load(path, fingerprint):
    """The `Catalogue` of a file that a model with this fingerprint made, or a ValueError."""
    try:
        with np.load(path) as archive:
            about = json.loads(archive["about"].tobytes())
            index = faiss.deserialize_index(archive["rows"])
            images = json.loads(archive["catalogue"].tobytes())
        made_by = str(about["fingerprint"])
        if about["format"] != _FORMAT or not hasattr(index, "id_map"):
            raise ValueError("another format")
        entries = {
            int(key): Entry(name, Stamp(*stamp), *rest)
            for key, (name, stamp, *rest) in images["entries"].items()
        }
        others = images["left_out"].items()
        left_out = {name: LeftOut(Stamp(*stamp), cause) for name, (stamp, cause) in others}
        catalogue = Catalogue(index, entries, int(images["next_id"]), left_out)
    except (FileNotFoundError, MemoryError):
        raise
    except Exception as error:  # broken archives raise many types
        raise ValueError(f"{path} is not the index of a search: give another --index") from error
    expected = f"{path} must have been made by this model: give another --index, or remove it"
    check(made_by == fingerprint, expected, model=fingerprint[:12], made_by=made_by[:12])
    return catalogue
