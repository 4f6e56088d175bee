"""Search by image in a collection that `tfdml.scale` embedded and indexed."""

import contextlib
import functools
import hashlib
import pathlib
import random
import threading
from typing import Any, NamedTuple

import pyarrow as pa

from tfdml import scale
from tfdml.scale.layout import MANIFEST, REMOVED
from tfdml.scale.listed_images import SCHEMA, Listing
from tfdml.scale.storage import fetch
from tfdml.scale.stored_index import ABOUT, FOLDER
from tfdml.search.picture_files import RejectedError, read_header
from tfdml.search.picture_search import PictureSearch

_HEADERS = 10_000  # kept in memory
_TRIED = 4  # ids for each image of a sample
_SHARDS = 64  # whose paths and labels are kept in memory


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
    """Search by image in a collection on disk, which is opened again once it has changed.

    With a folder for `uploads`, pictures can be added to it and images removed.
    """

    refreshing, failure, filters = None, None, True

    def __init__(self, model, folder, uploads=None):
        self.model, self.left_out = model, {}
        self.folder, self.uploads = pathlib.Path(folder).resolve(), uploads
        self._opened: Any = (None, None)
        self._opening = threading.Lock()
        self._changing = threading.Lock()
        len(self)  # opens it

    @property
    def images(self):
        """The `IndexedImages` that are on the disk now."""
        files = self.folder / MANIFEST, self.folder / FOLDER / ABOUT
        with self._opening:
            state = [file.exists() and file.stat().st_mtime_ns for file in files]
            if self._opened[0] != state:
                self._opened = state, IndexedImages(self.folder, self.model.fingerprint)
            return self._opened[1]

    def __len__(self):
        return len(self.images.index)

    @property
    def exact(self):
        """Whether a query is compared with the embeddings of all images."""
        return self.images.index.factory == "Flat"

    def content(self, key):
        """The bytes of an image's file; a `RejectedError` if it is not that of an image."""
        content = self.images.read(key)
        read_header(content)
        return content

    def sample(self, count, seed):
        """Some images, drawn at random, as {id: `Listed`}; also of those without an embedding."""
        images, drawn = self.images, {}
        listed = images.collection.images
        for key in random.Random(seed).sample(range(listed), min(_TRIED * count, listed)):
            with contextlib.suppress(RejectedError):  # of one that was removed
                drawn[key] = images.entry(key)
            if len(drawn) == count:
                break
        return drawn

    def add(self, content):
        """Keeps the bytes of a picture in a file and adds it; returns its id."""
        kind, *_ = read_header(content)
        with self._one_change():
            self.embedded(content)  # before anything is kept
            self.uploads.mkdir(parents=True, exist_ok=True)
            name = f"{hashlib.sha256(content).hexdigest()[:24]}.{kind.lower()}"
            path = self.uploads.resolve() / name
            path.write_bytes(content)
            listing = Listing(pa.table([[str(path)], [None]], schema=SCHEMA).to_batches)
            scale.changing.add(self.folder, self.model, listing)
            quoted = str(path).replace("'", "''")
            return int(self.images.collection.matching(f"path = '{quoted}'")[-1])

    def remove(self, key):
        """Takes an image out of the collection; its file stays."""
        with self._one_change():
            if not scale.changing.remove(self.folder, f"id = {key}"):
                raise _no_image(key)

    def start_refresh(self):
        """Raises a `RejectedError`: the collection is embedded and indexed elsewhere."""
        raise RejectedError("`python -m tfdml.scale` makes this index: start it there", status=409)

    @contextlib.contextmanager
    def _one_change(self):
        if self.uploads is None:
            raise RejectedError("Start the search with --uploads FOLDER to change it", status=409)
        try:
            with self._changing:
                yield
        except BlockingIOError as error:
            raise RejectedError(str(error), status=503) from error


class IndexedImages:
    """A collection and its index, as they are on the disk at one time."""

    def __init__(self, folder, fingerprint):
        self.collection = scale.Collection(folder)
        self.collection.check_model(fingerprint)
        self.index = scale.StoredIndex(self.collection)
        self._header = functools.lru_cache(_HEADERS)(lambda key: read_header(self.read(key)))
        self._texts = functools.lru_cache(_SHARDS)(
            lambda number: self.collection.read(number, ["path", "label", "error"])
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
            return self.collection.rows(ids)
        except KeyError:
            raise RejectedError("The image has no embedding", status=404) from None

    def entry(self, key):
        """The `Listed` image of an id; a `RejectedError` with 404 if there is none."""
        try:
            header = self._header(key)
        except RejectedError:  # not cached, as the file may be readable next time
            header = ("JPEG", 0, 0)
        path, label = self._text(key)
        return Listed(path, *header, label)

    def read(self, key):
        """The bytes of an image's file."""
        try:
            content = fetch(self._text(key)[0])
        except OSError:
            content = ""
        if isinstance(content, str):
            raise RejectedError("The file of the image cannot be read", status=404)
        return content

    def _text(self, key):
        """The path and the label of an id."""
        if 0 <= key < self.collection.images:
            number, row = divmod(key, self.collection.shard_size)
            found = self._texts(number).slice(row, 1).to_pylist()[0]
            if found["error"] != REMOVED:
                return found["path"], found["label"]
        raise _no_image(key)


def _no_image(key):
    return RejectedError(f"There is no image with this id. Received: id={key}", status=404)
