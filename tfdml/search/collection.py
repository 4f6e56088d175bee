"""Search by image in a collection that `tfdml.scale` embedded and indexed."""

import functools
import pathlib
import random
import time
from typing import NamedTuple

import numpy as np

from tfdml.scale.collection import Collection, import_needed
from tfdml.scale.index import StoredIndex
from tfdml.search.by_picture import Answer, Found, PictureSearch
from tfdml.search.images import RejectedError, read_header

_HEADERS = 10_000  # kept in memory


class Listed(NamedTuple):
    """An image of the collection."""

    name: str  # path, as it is listed
    format: str  # a key of `images.MIME_TYPES`
    width: int  # pixels; 0 if the file cannot be read
    height: int
    label: str | None

    @property
    def folder(self):
        """The label; without one, the folder of the file."""
        return self.name.rpartition("/")[0] if self.label is None else self.label


class CollectionSearch(PictureSearch):
    """`ImageSearch` in a collection on disk. Its index and its images do not change.

    Args:
        model: A `SearchModel`.
        folder: Path of the collection.

    Raises:
        FileNotFoundError: If it has no index.
        ValueError: If another model made its embeddings.
        ImportError: If the extra `scale` is not installed.
    """

    ranked_by, rerank = "distance", 0
    refreshing = failure = None

    def __init__(self, model, folder):
        super().__init__(model)
        self.folder, self.left_out = pathlib.Path(folder).resolve(), {}
        self._collection = Collection(folder)
        self._collection.check_model(model.fingerprint)
        self._index = StoredIndex(self._collection)
        if model.radius is not None:
            self.ranked_by = "cosine"
        self._header = functools.lru_cache(_HEADERS)(lambda key: self._read(key)[1])

    def __len__(self):
        return len(self._index)

    @property
    def exact(self):
        """Whether a query is compared with the embeddings of all images."""
        return self._index.factory == "Flat"

    @property
    def index_folder(self):
        return self._index.folder

    def by_id(self, key, count):
        """As `ImageSearch.by_id`."""
        self._check(key)
        try:
            [row] = self._collection.rows([key])
        except KeyError:
            raise RejectedError("The image has no embedding", status=404) from None
        return self._nearest(row, count, {}, left_out=key)

    def content(self, key):
        """The bytes of an image's file.

        Raises:
            RejectedError: With 404, if no image has this id or its file cannot be read; as
                `read_header` does, if it is no longer that of an image.
        """
        return self._read(key)[0]

    def _read(self, key):
        """The bytes of an image's file, and their `Header`."""
        self._check(key)
        path, _ = self._index.text(key)
        try:
            if "://" in path:
                with import_needed("fsspec").open(path, "rb") as file:
                    content = file.read()
            else:
                content = pathlib.Path(path).read_bytes()
        except Exception as error:  # clients of networks raise many types
            raise RejectedError("The file of the image cannot be read", status=404) from error
        return content, read_header(content)

    def sample(self, count, seed):
        """Some images, drawn at random, as {id: `Listed`}; also of those without an embedding."""
        ids = random.Random(seed).sample(range(self._collection.images), min(count, len(self)))
        return {key: self.entry(key) for key in ids}

    def start_refresh(self):
        """Raises a `RejectedError`: the collection is embedded and indexed elsewhere."""
        raise RejectedError("`python -m tfdml.scale` makes this index: start it there", status=409)

    def entry(self, key):
        """The `Listed` image of an id; a `RejectedError` with 404 if there is none."""
        self._check(key)
        path, label = self._index.text(key)
        try:
            header = self._header(key)
        except RejectedError:  # not cached, as the file may be readable next time
            header = ("JPEG", 0, 0)
        return Listed(path, *header, label)

    def _check(self, key):
        if not 0 <= key < self._collection.images:
            raise RejectedError(f"There is no image with this id. Received: id={key}", status=404)

    def _nearest(self, row, count, seconds, left_out=None):
        began = time.perf_counter()
        ids, distances = self._index.nearest(row, count + (left_out is not None))
        others = ids != left_out if left_out is not None else np.ones(len(ids), bool)
        ids, distances = ids[others][:count], distances[others][:count]
        seconds["search"] = time.perf_counter() - began
        cosines, nothing = self._cosines(distances), [None] * len(ids)
        entries = map(self.entry, ids.tolist())
        found = map(Found, ids.tolist(), entries, distances.tolist(), cosines, nothing)
        return Answer(self.ranked_by, list(found), seconds)
