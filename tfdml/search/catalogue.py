"""Metadata of the indexed images, and of files left out of the index."""

import dataclasses
import json
from typing import NamedTuple

from tfdml.search.files import Stamp


class Entry(NamedTuple):
    """An image of the index."""

    name: str  # path relative to the folder of images, with slashes
    stamp: Stamp  # of the file that was embedded
    format: str  # a key of `pictures.MIME_TYPES`
    width: int  # pixels
    height: int


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

    def without(self, ids, names=()):
        """The catalogue without the given images and left-out files."""
        gone, cleared = set(ids), set(names)
        return dataclasses.replace(
            self,
            entries={key: entry for key, entry in self.entries.items() if key not in gone},
            left_out={name: why for name, why in self.left_out.items() if name not in cleared},
        )

    def with_more(self, entries, left_out):
        """Adds images and left-out files; returns the catalogue and the ids of the images.

        Args:
            entries: List of `Entry`.
            left_out: {name: `LeftOut`}.
        """
        ids = range(self.next_id, self.next_id + len(entries))
        more = Catalogue(
            entries={**self.entries, **dict(zip(ids, entries, strict=True))},
            next_id=ids.stop,
            left_out={**self.left_out, **left_out},
        )
        return more, list(ids)

    def to_json(self):
        """The catalogue as text."""
        fields = dataclasses.fields(self)
        return json.dumps({field.name: getattr(self, field.name) for field in fields})

    @classmethod
    def from_json(cls, text):
        """The catalogue of a text from `to_json`.

        Raises:
            ValueError: If the text is not that of a catalogue.
        """
        try:
            parsed = json.loads(text)
            entries = {
                int(key): Entry(name, Stamp(*stamp), *rest)
                for key, (name, stamp, *rest) in parsed["entries"].items()
            }
            left_out = {
                name: LeftOut(Stamp(*stamp), cause)
                for name, (stamp, cause) in parsed["left_out"].items()
            }
            return cls(entries, int(parsed["next_id"]), left_out)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise ValueError("the catalogue of the index cannot be read") from error
