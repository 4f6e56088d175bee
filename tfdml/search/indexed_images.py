"""The images of a collection, their index and their files."""

import functools
import pathlib
from typing import NamedTuple

import pyarrow.compute as pc

from tfdml import scale
from tfdml.scale.layout import REMOVED, STAMP
from tfdml.scale.storage import fetch
from tfdml.scale.stored_index import FOLDER, ExactIndex
from tfdml.search.picture_files import RejectedError, read, read_header

_ENTRIES = 10_000  # kept in memory
_TEXTS = 500_000  # images whose paths and labels are kept in memory


class Listed(NamedTuple):
    """An image of the collection."""

    name: str  # path, as it is listed or relative to the folder of all images
    width: int  # pixels; 0 if the file cannot be read
    height: int
    label: str | None

    @property
    def folder(self):
        """The label; without one, the folder of the file."""
        return self.name.rpartition("/")[0] if self.label is None else self.label


class IndexedImages:
    """A collection and its index, as they are on the disk at one time.

    Without an index all embeddings are in memory. With `root`, images are named relative to it, and
    a file is only read if it is in it and has the stamp of the list.
    """

    def __init__(self, folder, fingerprint, root=None):
        self.collection, self.root = scale.Collection(folder), root
        self.collection.check_model(fingerprint)
        if (folder / FOLDER).exists():
            self.index = scale.StoredIndex(self.collection)
            self.ids, self._rows = range(self.collection.images), self.collection.rows
        else:
            rows = self.collection.all_rows()
            self.index = ExactIndex(rows, self.collection.matching)
            self.ids, self._rows = rows.ids.tolist(), rows.at
        columns = ["path", "label", "error", *[STAMP] * bool(root)]
        self._readable = functools.lru_cache(_ENTRIES)(
            lambda key: self._listed(key, *read_header(self.read(key))[1:])
        )
        self._texts = functools.lru_cache(-(-_TEXTS // self.collection.shard_size))(
            lambda number: self.collection.read(number, columns)
        )

    def nearest(self, row, count, where=""):
        """As `StoredIndex.nearest`; a `RejectedError` for a condition that is none."""
        try:
            return self.index.nearest(row, count, where)
        except ValueError as error:
            raise RejectedError(str(error)) from error

    def rows(self, ids):
        """(n, dim) float32, the embeddings of ids."""
        try:
            return self._rows(ids)
        except KeyError:
            raise RejectedError("The image has no embedding", status=404) from None

    def entry(self, key):
        """The `Listed` image of an id; a `RejectedError` with 404 if there is none."""
        try:
            return self._readable(key)
        except RejectedError:  # not cached, as the file may be readable next time
            return self._listed(key, 0, 0)

    def _listed(self, key, width, height):
        row = self._row(key)
        return Listed(self.name(row["path"]), width, height, row["label"])

    def name(self, path):
        """How a path is shown."""
        if self.root and pathlib.Path(path).is_relative_to(self.root):
            return pathlib.Path(path).relative_to(self.root).as_posix()
        return path

    def read(self, key):
        """The bytes of an image's file."""
        row = self._row(key)
        try:
            content = read(self.root, row["path"], row[STAMP]) if self.root else fetch(row["path"])
        except OSError:
            content = ""
        if isinstance(content, str):
            raise RejectedError("The file of the image cannot be read", status=404)
        return content

    @functools.cached_property
    def unreadable(self):
        """{name: reason} of the images without an embedding."""
        rows = self.collection.present().select(["path", "error"])
        rows = rows.filter(pc.is_valid(rows["error"])).to_pylist()
        return {self.name(row["path"]): row["error"] for row in rows}

    def _row(self, key):
        """The texts of an id, by their columns."""
        if 0 <= key < self.collection.images:
            number, row = divmod(key, self.collection.shard_size)
            found = self._texts(number).slice(row, 1).to_pylist()[0]
            if found["error"] != REMOVED:
                return found
        raise no_image(key)


def no_image(key):
    """The error for an id that no image has."""
    return RejectedError(f"There is no image with this id. Received: id={key}", status=404)
