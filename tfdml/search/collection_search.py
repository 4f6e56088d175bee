"""Search by image in a collection that `tfdml.scale` embedded and indexed."""

import functools
import pathlib
import random
from typing import NamedTuple

from tfdml import scale
from tfdml.scale.storage import fetch
from tfdml.search.picture_files import RejectedError, read_header
from tfdml.search.picture_search import PictureSearch

_HEADERS = 10_000  # kept in memory


class Listed(NamedTuple):
    """An image of the collection."""

    name: str  # path, as it is listed
    format: str  # a key of `picture_files.MIME_TYPES`
    width: int  # pixels; 0 if the file cannot be read
    height: int
    label: str | None

    @property
    def folder(self):
        """The label; without one, the folder of the file."""
        return self.name.rpartition("/")[0] if self.label is None else self.label


class CollectionSearch(PictureSearch):
    """Search by image in a collection on disk, whose index and images do not change."""

    refreshing = failure = None

    def __init__(self, model, folder):
        self.model, self.images, self.left_out = model, self, {}
        self.folder = pathlib.Path(folder).resolve()
        self._collection = scale.Collection(folder)
        self._collection.check_model(model.fingerprint)
        self.index = scale.StoredIndex(self._collection)
        self.nearest = self.index.nearest
        self.exact = self.index.factory == "Flat"
        self._header = functools.lru_cache(_HEADERS)(lambda key: read_header(self._read(key)))

    def __len__(self):
        return len(self.index)

    def rows(self, ids):
        """(n, dim) float32, the embeddings of ids."""
        try:
            return self._collection.rows(ids)
        except KeyError:
            raise RejectedError("The image has no embedding", status=404) from None

    def entry(self, key):
        """The `Listed` image of an id; a `RejectedError` with 404 if there is none."""
        path, label = self._text(key)
        try:
            header = self._header(key)
        except RejectedError:  # not cached, as the file may be readable next time
            header = ("JPEG", 0, 0)
        return Listed(path, *header, label)

    def content(self, key):
        """The bytes of an image's file; a `RejectedError` if it is not that of an image."""
        content = self._read(key)
        read_header(content)
        return content

    def sample(self, count, seed):
        """Some images, drawn at random, as {id: `Listed`}; also of those without an embedding."""
        ids = random.Random(seed).sample(range(self._collection.images), min(count, len(self)))
        return {key: self.entry(key) for key in ids}

    def start_refresh(self):
        """Raises a `RejectedError`: the collection is embedded and indexed elsewhere."""
        raise RejectedError("`python -m tfdml.scale` makes this index: start it there", status=409)

    def _text(self, key):
        """The path and the label of an id."""
        if not 0 <= key < self._collection.images:
            raise RejectedError(f"There is no image with this id. Received: id={key}", status=404)
        return self.index.text(key)

    def _read(self, key):
        try:
            content = fetch(self._text(key)[0])
        except OSError:
            content = ""
        if isinstance(content, str):
            raise RejectedError("The file of the image cannot be read", status=404)
        return content
