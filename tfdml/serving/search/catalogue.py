"""What an index knows of its images besides their embeddings, and of files that it left out."""

import dataclasses
import json
from typing import NamedTuple

from tfdml.serving.search.files import Stamp


class Entry(NamedTuple):
    """An image of the index."""

    name: str  # path relative to the folder of images, with slashes
    stamp: Stamp  # of the file that was embedded
    format: str  # a key of `pictures.MIME_TYPES`
    width: int  # pixels
    height: int


class LeftOut(NamedTuple):
    """A file that is no image that the model can read."""

    stamp: Stamp
    cause: str  # a sentence


@dataclasses.dataclass(frozen=True)
class Catalogue:
    """The images of an index by their ids, of which none is ever given twice.

    Args:
        entries: {id: `Entry`}.
        next_id: The id that the next image gets.
        left_out: {name: `LeftOut`}.
    """

    entries: dict = dataclasses.field(default_factory=dict)
    next_id: int = 0
    left_out: dict = dataclasses.field(default_factory=dict)

    def without(self, ids, names=()):
        """The catalogue without some images, nor some of the files that were left out."""
        gone, cleared = set(ids), set(names)
        return dataclasses.replace(
            self,
            entries={key: entry for key, entry in self.entries.items() if key not in gone},
            left_out={name: why for name, why in self.left_out.items() if name not in cleared},
        )

    def with_more(self, entries, left_out):
        """The catalogue with more images and files left out, and the ids of the images.

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
        """The catalogue that `to_json` gave.

        Raises:
            ValueError: If the text is not that of a catalogue.
        """
        try:
            told = json.loads(text)
            entries = {
                int(key): Entry(name, Stamp(*stamp), *rest)
                for key, (name, stamp, *rest) in told["entries"].items()
            }
            left_out = {
                name: LeftOut(Stamp(*stamp), cause)
                for name, (stamp, cause) in told["left_out"].items()
            }
            return cls(entries, int(told["next_id"]), left_out)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise ValueError("the catalogue of the index cannot be read") from error
