"""The images of an index, the files left out of it, and the archive that keeps them."""

import dataclasses
import json
import pathlib
from typing import NamedTuple

import numpy as np

from tfdml.checks import check
from tfdml.files import replacing
from tfdml.search.images import RejectedError, Stamp
from tfdml.search.index import Index

_FORMAT = 1  # of the archive


class Entry(NamedTuple):
    """An image of the index."""

    name: str  # path relative to the folder of images, with slashes
    stamp: Stamp  # of the file that was embedded
    format: str  # a key of `images.MIME_TYPES`
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
    """The images of an index by id; ids are never reused.

    Args:
        entries: {id: `Entry`}.
        next_id: Id of the next image.
        left_out: {name: `LeftOut`}.
    """

    entries: dict = dataclasses.field(default_factory=dict)
    next_id: int = 0
    left_out: dict = dataclasses.field(default_factory=dict)

    def entry(self, key):
        """The `Entry` of an id; raises a `RejectedError` with 404 if there is none."""
        if key not in self.entries:
            raise RejectedError(f"There is no image with this id. Received: id={key}", status=404)
        return self.entries[key]

    def without(self, ids, names=()):
        """The catalogue without the given images and left-out files."""
        gone, cleared = set(ids), set(names)
        entries = {key: entry for key, entry in self.entries.items() if key not in gone}
        left_out = {name: why for name, why in self.left_out.items() if name not in cleared}
        return Catalogue(entries, self.next_id, left_out)

    def with_more(self, entries, left_out):
        """Adds images and left-out files; returns the catalogue and the ids of the images.

        Args:
            entries: List of `Entry`.
            left_out: {name: `LeftOut`}.
        """
        ids = range(self.next_id, self.next_id + len(entries))
        entries = {**self.entries, **dict(zip(ids, entries, strict=True))}
        return Catalogue(entries, ids.stop, {**self.left_out, **left_out}), list(ids)

    def to_json(self):
        """The catalogue as text."""
        return json.dumps(vars(self))

    @classmethod
    def from_json(cls, text):
        """The catalogue of a text from `to_json`; any error, if it is not one."""
        parsed = json.loads(text)
        images, others = parsed["entries"].items(), parsed["left_out"].items()
        entries = {int(i): Entry(name, Stamp(*stamp), *rest) for i, (name, stamp, *rest) in images}
        left_out = {name: LeftOut(Stamp(*stamp), cause) for name, (stamp, cause) in others}
        return cls(entries, int(parsed["next_id"]), left_out)


def save(path, index, catalogue, fingerprint):
    """Writes an index atomically: a crash leaves the old file or the new one.

    Args:
        path: The file; its folder is made if it does not exist.
        index: An `Index`.
        catalogue: Its `Catalogue`.
        fingerprint: Of the model that made the rows.
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    about = json.dumps({"format": _FORMAT, "fingerprint": fingerprint})
    texts = {"about": about, "catalogue": catalogue.to_json()}
    arrays: dict = {name: np.frombuffer(text.encode(), np.uint8) for name, text in texts.items()}
    with replacing(path) as unfinished, open(unfinished, "wb") as file:
        np.savez(file, rows=index.to_bytes(), **arrays)


def load(path, fingerprint, *, approximate=False):
    """Reads an index that this model made.

    Args:
        path: The file.
        fingerprint: Of the model.
        approximate: As for `Index`.

    Returns:
        The `Index` and its `Catalogue`.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If another model made it, or it cannot be read.
    """
    try:
        with np.load(path) as archive:
            about = json.loads(archive["about"].tobytes())
            if about["format"] != _FORMAT or not isinstance(about["fingerprint"], str):
                raise ValueError("another format")
            index = Index.from_bytes(archive["rows"], approximate=approximate)
            catalogue = Catalogue.from_json(archive["catalogue"].tobytes())
    except (FileNotFoundError, MemoryError):
        raise
    except Exception as error:  # broken archives raise many types
        raise ValueError(f"{path} is not the index of a search: give another --index") from error
    expected = f"{path} must have been made by this model: give another --index, or remove it"
    models = {"model": fingerprint[:12], "made_by": about["fingerprint"][:12]}
    check(about["fingerprint"] == fingerprint, expected, **models)
    expected = f"{path} must have as many rows as images: remove it"
    rows, images = len(index), len(catalogue.entries)
    check(rows == images, expected, rows=rows, images=images)
    return index, catalogue
