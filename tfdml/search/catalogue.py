"""The images of a search in a folder, their index, and the archive that keeps both."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import NamedTuple

import numpy as np

from tfdml.checks import check
from tfdml.files import replacing
from tfdml.search.picture_files import RejectedError, Stamp
from tfdml.search.row_index import RowIndex

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
    """The images of an index by id; ids are never reused. Changes return another catalogue."""

    index: RowIndex
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
        return self.index.rows(ids)

    def changes(self, files):
        """The ids and names to be removed, and {name: `Stamp`} to be added, to become `files`.

        The ids are those of images that are gone, the names those of left-out files that are gone
        or changed. A changed image is both gone and new.
        """
        gone = [key for key, each in self.entries.items() if files.get(each.name) != each.stamp]
        cleared = [name for name, why in self.left_out.items() if files.get(name) != why.stamp]
        kept = {each.name for each in self.entries.values() if files.get(each.name) == each.stamp}
        kept |= self.left_out.keys() - cleared
        return gone, cleared, {name: files[name] for name in files if name not in kept}

    def without(self, ids, names=()):
        """The catalogue without the given images and left-out files."""
        gone, cleared = set(ids), set(names)
        entries = {key: entry for key, entry in self.entries.items() if key not in gone}
        left_out = {name: why for name, why in self.left_out.items() if name not in cleared}
        return Catalogue(self.index.changed(remove=ids), entries, self.next_id, left_out)

    def with_more(self, files):
        """The catalogue with more files: {name: `LeftOut`, or (`Entry`, embedding)}."""
        left_out = {name: file for name, file in files.items() if isinstance(file, LeftOut)}
        pairs = [file for name, file in files.items() if name not in left_out]
        ids, index = range(self.next_id, self.next_id + len(pairs)), self.index
        if pairs:
            index = index.changed(add=(ids, np.stack([row for _, row in pairs])))
        entries = {**self.entries, **{i: each for i, (each, _) in zip(ids, pairs, strict=True)}}
        return Catalogue(index, entries, ids.stop, {**self.left_out, **left_out})

    def save(self, path, fingerprint):
        """Writes a file in one step, with the fingerprint of the model that made the rows."""
        path.parent.mkdir(parents=True, exist_ok=True)
        about = {"format": _FORMAT, "fingerprint": fingerprint}
        images = {name: getattr(self, name) for name in ("entries", "next_id", "left_out")}
        texts = {"about": json.dumps(about), "catalogue": json.dumps(images)}
        arrays: dict = {
            name: np.frombuffer(text.encode(), np.uint8) for name, text in texts.items()
        }
        with replacing(path) as unfinished, open(unfinished, "wb") as file:
            np.savez(file, rows=self.index.to_bytes(), **arrays)


def load(path, fingerprint, *, approximate=False):
    """The `Catalogue` of a file that a model with this fingerprint made, or a ValueError."""
    try:
        with np.load(pathlib.Path(path)) as archive:
            about = json.loads(archive["about"].tobytes())
            if about["format"] != _FORMAT or not isinstance(about["fingerprint"], str):
                raise ValueError("another format")
            index = RowIndex.from_bytes(archive["rows"], approximate=approximate)
            images = json.loads(archive["catalogue"].tobytes())
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
    models = {"model": fingerprint[:12], "made_by": about["fingerprint"][:12]}
    check(about["fingerprint"] == fingerprint, expected, **models)
    expected = f"{path} must have as many rows as images: remove it"
    rows, images = len(index), len(entries)
    check(rows == images, expected, rows=rows, images=images)
    return catalogue
