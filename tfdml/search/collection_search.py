"""Search by image in a collection that `tfdml.scale` embedded and indexed."""

import contextlib
import functools
import hashlib
import pathlib
import random
import threading
import time
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfdml import scale
from tfdml.scale.layout import MANIFEST, REMOVED, STAMP
from tfdml.scale.listed_images import SCHEMA, Listing
from tfdml.scale.storage import fetch
from tfdml.scale.stored_index import ABOUT, FOLDER, ExactIndex
from tfdml.search.picture_files import RejectedError, read, read_header

MOST_PIXELS = 50_000_000  # of a picture that is sent; two are decoded at once, in 2 GB
_ENTRIES = 10_000  # kept in memory
_TEXTS = 500_000  # images whose paths and labels are kept in memory
_TRIED = 4  # ids for each image of a sample


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


class Found(NamedTuple):
    """An image that a search found."""

    id: int
    entry: Listed
    scores: dict  # those of "similarity", which was learned, "cosine" and "distance" that apply


class Answer(NamedTuple):
    """Results of a search, best first."""

    ranked_by: str  # name of a score of `Found`
    found: list
    seconds: dict  # {"embedding": of the model, "search": of the index, "reranking": ...}
    decision: dict | None  # of a model that decides: "known", "class", "probability" and the reason


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
        raise _no_image(key)


class CollectionSearch:
    """Search by image in a collection on disk, which is opened again once it has changed.

    Args:
        model: A `SearchModel`.
        collection: Its folder.
        uploads: Folder with which pictures can be added to it, and images removed.
        root: Folder of all of its images, if there is one.

    Attributes:
        rerank: Least number of nearest images that a learned similarity reranks.
    """

    rerank = 0
    refreshing = failure = None
    left_out: ClassVar[dict] = {}
    unchangeable = "Start the search with --uploads FOLDER to change it"

    def __init__(self, model, collection, uploads=None, *, root=None):
        self.model, self._root = model, root
        self.uploads: Any = uploads
        self.collection = pathlib.Path(collection).resolve()
        self.folder = root or self.collection
        self._opened: Any = (None, None)
        self._opening = threading.Lock()
        self._changing = threading.Lock()
        len(self)  # opens it

    @property
    def images(self):
        """The `IndexedImages` that are on the disk now."""
        files = self.collection / MANIFEST, self.collection / FOLDER / ABOUT
        with self._opening:
            found = [file.stat() for file in files if file.exists()]
            state = [(status.st_mtime_ns, status.st_ino) for status in found]
            if self._opened[0] != state:
                images = IndexedImages(self.collection, self.model.fingerprint, self._root)
                self._opened = state, images
            return self._opened[1]

    def __len__(self):
        return len(self.images.index)

    @property
    def exact(self):
        """Whether a query is compared with the embeddings of all images."""
        return self.images.index.factory == "Flat"

    def sample(self, count, seed):
        """Some images, drawn at random, as {id: `Listed`}; also of those without an embedding."""
        images, drawn = self.images, {}
        keys = images.ids
        for key in random.Random(seed).sample(keys, min(_TRIED * count, len(keys))):
            with contextlib.suppress(RejectedError):  # of one that was removed
                drawn[key] = images.entry(key)
            if len(drawn) == count:
                break
        return drawn

    def add(self, content):
        """Keeps the bytes of a picture in a file and adds it; returns its id."""
        kind, *_ = read_header(content)
        with self._one_change():
            self.model.embed_picture(content)  # before anything is kept
            self.uploads.mkdir(parents=True, exist_ok=True)
            name = f"{hashlib.sha256(content).hexdigest()[:24]}.{kind.lower()}"
            path = self.uploads.resolve() / name
            path.write_bytes(content)
            listing = Listing(pa.table([[str(path)], [None]], schema=SCHEMA).to_batches)
            scale.changing.add(self.collection, self.model, listing)
            quoted = str(path).replace("'", "''")
            return int(self.images.collection.matching(f"path = '{quoted}'")[-1])

    def remove(self, key):
        """Takes an image out of the collection; its file stays."""
        with self._one_change():
            if not scale.changing.remove(self.collection, f"id = {key}"):
                raise _no_image(key)

    def stop(self):
        """Ends work in the background, if there is any."""

    def start_refresh(self):
        """Raises a `RejectedError`: the collection is embedded and indexed elsewhere."""
        raise RejectedError("`python -m tfdml.scale` makes this index: start it there", status=409)

    @contextlib.contextmanager
    def _one_change(self):
        if self.uploads is None:
            raise RejectedError(self.unchangeable, status=409)
        try:
            with self._changing:
                yield
        except BlockingIOError as error:
            raise RejectedError(str(error), status=503) from error

    @property
    def ranked_by(self):
        """The score that results are ordered by."""
        by_distance = "distance" if self.model.radius is None else "cosine"
        return "similarity" if self.rerank else by_distance

    def by_picture(self, content, count, where=""):
        """The `Answer` of the images nearest to a picture, given as the bytes of its file.

        `where` is a condition in SQL that the images must meet.
        """
        _, width, height = read_header(content)
        if width * height > MOST_PIXELS:
            sides = f"{width:,} x {height:,}"
            expected = f"The picture must have at most {MOST_PIXELS:,} pixels"
            raise RejectedError(f"{expected}. Received: {sides}", status=413)
        began = time.perf_counter()
        row = self.model.embed_picture(content)
        seconds = {"embedding": time.perf_counter() - began}
        return self._answer(self.images, row, count, where, seconds)

    def by_id(self, key, count, where=""):
        """The `Answer` of the images nearest to one of the index, without itself."""
        images = self.images
        images.entry(key)
        [row] = images.rows([key])
        return self._answer(images, row, count, where, {}, left_out=key)

    def _answer(self, images, row, count, where, seconds, left_out=-1):
        began = time.perf_counter()
        most = max(count, self.rerank) + (left_out >= 0)
        try:
            ids, distances = images.index.nearest(row, most, where)
        except ValueError as error:  # of a condition that is none
            raise RejectedError(str(error)) from error
        others = ids != left_out
        ids, distances, scores = ids[others], distances[others], {}
        order, radius = np.arange(len(ids)), self.model.radius
        seconds["search"] = time.perf_counter() - began
        if self.rerank and len(ids):
            began = time.perf_counter()
            scores["similarity"] = self.model.score(row, images.rows(ids))
            order = np.argsort(-scores["similarity"], kind="stable")
            seconds["reranking"] = time.perf_counter() - began
        if radius is not None:
            scores["cosine"] = 1 - distances**2 / (2 * radius**2)
        scores["distance"] = distances
        found = []
        for place in order[:count].tolist():
            key = int(ids[place])
            values = {name: float(score[place]) for name, score in scores.items()}
            found.append(Found(key, images.entry(key), values))
        return Answer(self.ranked_by, found, seconds, self.model.decide(row))


def _no_image(key):
    """The error for an id that no image has."""
    return RejectedError(f"There is no image with this id. Received: id={key}", status=404)
