"""The search itself: images of a folder by an image, and the index that follows the folder."""

import pathlib
import threading
import time
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from tfdml.checks import check
from tfdml.serving.search import storage
from tfdml.serving.search.catalogue import Catalogue, Entry, LeftOut
from tfdml.serving.search.files import image_files, read
from tfdml.serving.search.index import Index
from tfdml.serving.search.pictures import read_header
from tfdml.serving.search.refreshing import changes, embedded
from tfdml.serving.search.refusals import RefusedError

RERANKED = 100  # images that a learned similarity puts in order if not told otherwise
_SAVE_EVERY = 60.0  # seconds of embedding that a crash may lose
_SAVE_SHARE = 20  # times as long as the saving itself takes, at least


class Found(NamedTuple):
    """An image that a search found; a score is None where there is none of the kind."""

    id: int
    entry: Entry
    distance: float  # Euclidean
    cosine: float | None
    similarity: float | None  # learned


class Answer(NamedTuple):
    """What a search found, the best first."""

    ranked_by: str  # a score of `Found`
    found: list
    seconds: dict  # {"embedding": of the model, "search": of the index, "reranking": ...}


class _Snapshot(NamedTuple):
    """An index and its catalogue, which hold the same ids. Neither ever changes."""

    index: Index
    catalogue: Catalogue


class ImageSearch:
    """Images of a folder by an image. Searches may run at once, and while it is refreshed.

    Args:
        model: A `SearchModel`.
        folder: Path of the images.
        path: File of the index; where it exists, the search goes on with it.
        rerank: Nearest images that a learned similarity puts in order, 0 for none; 100 if None and
            the model has one.
        approximate: As for `Index`.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If the index is of another model or broken, lies in the folder, or `rerank` asks
            for a similarity that the model has not.
    """

    def __init__(self, model, folder, path, *, rerank=None, approximate=False):
        if not pathlib.Path(folder).is_dir():
            raise FileNotFoundError(f"`images` must be a folder; there is none at {folder}")
        check(
            model.learned or not rerank,
            "`rerank` needs a model with a learned similarity, as --loss pddm trains",
            rerank=rerank,
        )
        self.model = model
        self.folder = pathlib.Path(folder).resolve()
        self.path = pathlib.Path(path)
        check(
            not self.path.resolve().is_relative_to(self.folder),
            "`index` must lie outside of the folder of images",
            index=str(path),
        )
        self.rerank = (RERANKED if model.learned else 0) if rerank is None else rerank
        self._snapshot = _Snapshot(Index(model.dim, approximate=approximate), Catalogue())
        if self.path.exists():
            loaded = storage.load(self.path, model.fingerprint, approximate=approximate)
            self._snapshot = _Snapshot(*loaded)
        self._refreshing = threading.Lock()
        self._done = self._total = 0
        self._failure = None

    def __len__(self):
        return len(self._snapshot.index)

    @property
    def ranked_by(self):
        """The score that orders what is found."""
        return (
            "similarity" if self.rerank else "distance" if self.model.radius is None else "cosine"
        )

    @property
    def refreshing(self):
        """None, or how many new images are embedded, and of how many."""
        return (self._done, self._total) if self._refreshing.locked() else None

    @property
    def failure(self):
        """Why the last refresh failed; None if it did not."""
        return self._failure

    @property
    def left_out(self):
        """{name: cause} of the files that are no images that the model can read."""
        return {name: why.cause for name, why in self._snapshot.catalogue.left_out.items()}

    @property
    def cells(self):
        """Cells of the index, of which a search looks into some; 0 for an exact one."""
        return self._snapshot.index.cells

    def by_picture(self, content, count):
        """The images nearest to a picture.

        Args:
            content: The bytes of its file.
            count: Images to find.

        Returns:
            An `Answer`.

        Raises:
            RefusedError: If it is no picture, too large a one, or the model cannot read it.
        """
        read_header(content)
        began = time.perf_counter()
        [row] = self.model.embed([content])
        if isinstance(row, RefusedError):
            raise row
        return self._nearest(row, count, {"embedding": time.perf_counter() - began})

    def by_id(self, key, count):
        """The images nearest to one of the index, itself left out.

        Args:
            key: Its id.
            count: Images to find.

        Raises:
            RefusedError: If there is none of this id, with 404.
        """
        self.entry(key)
        try:
            [row] = self._snapshot.index.rows([key])
        except RuntimeError:  # deleted in between
            raise _unknown(key) from None
        return self._nearest(row, count, {}, left_out=key)

    def entry(self, key):
        """What is known of an image.

        Raises:
            RefusedError: If there is none of this id, with 404.
        """
        entry = self._snapshot.catalogue.entries.get(key)
        if entry is None:
            raise _unknown(key)
        return entry

    def content(self, key):
        """The bytes of an image's file, as it was when it was indexed.

        Raises:
            RefusedError: If there is none of this id or the file is gone, with 404, or is another
                by now, with 410.
        """
        entry = self.entry(key)
        try:
            return read(self.folder, entry.name, entry.stamp)
        except OSError as error:
            raise RefusedError("The file of the image cannot be read", status=404) from error

    def sample(self, count, seed):
        """Some images of the index, drawn at random, as {id: `Entry`}."""
        entries = self._snapshot.catalogue.entries
        ids = np.fromiter(entries, np.int64, len(entries))
        drawn = np.random.default_rng(seed).permutation(ids)[:count].tolist()
        return {key: entries[key] for key in drawn}

    def refresh(self, *, show=False):
        """Follows the folder: embeds what is new, leaves out what is gone, and saves the index.

        A search meanwhile finds what was there before. What is embedded is saved every minute, and
        also where this is interrupted.

        Args:
            show: Whether to show a progress bar.

        Returns:
            The numbers of images added and left out.

        Raises:
            RefusedError: If it is under way, with 409.
            ValueError: If none of the images of the index is in the folder any more.
            OSError: If the index cannot be saved.
        """
        self._begin_refresh()
        try:
            return self._refresh(show)
        finally:
            self._refreshing.release()

    def start_refresh(self):
        """Refreshes in the background.

        Raises:
            RefusedError: If it is under way, with 409.
        """
        self._begin_refresh()

        def refresh():
            try:
                self._refresh(show=False)
            except Exception as error:  # whatever it is, the page tells it and the search goes on
                self._failure = str(error)
            finally:
                self._refreshing.release()

        threading.Thread(target=refresh, name="refresh", daemon=True).start()

    def _begin_refresh(self):
        if not self._refreshing.acquire(blocking=False):
            raise RefusedError("A refresh is under way", status=409)
        self._done, self._total, self._failure = 0, 0, None

    def _refresh(self, show):
        files = image_files(self.folder)
        entries = self._snapshot.catalogue.entries
        check(
            not entries or any(entry.name in files for entry in entries.values()),
            f"some image of {self.path} must be in {self.folder}: is it the right folder? "
            "Else remove that file, or give another --index",
            indexed=len(entries),
        )
        changed = changes(self._snapshot.catalogue, files)
        self._done, self._total = 0, len(changed.new)
        if changed.gone or changed.cleared:
            self._snapshot = _Snapshot(
                self._snapshot.index.changed(remove=changed.gone),
                self._snapshot.catalogue.without(changed.gone, changed.cleared),
            )
        before = len(self)
        unsaved = bool(changed.gone or changed.cleared) or not self.path.exists()
        pending, wait, saved = {}, _SAVE_EVERY, time.monotonic()
        bar = tqdm(total=self._total, desc="Embedding", unit="image", delay=2, disable=not show)
        try:
            for batch in embedded(self.model, self.folder, changed.new):
                pending.update(batch)
                self._done += len(batch)
                bar.update(len(batch))
                if time.monotonic() - saved > wait:
                    began = time.monotonic()
                    self._publish(pending)
                    pending, unsaved, saved = {}, False, time.monotonic()
                    wait = max(_SAVE_EVERY, _SAVE_SHARE * (saved - began))
        finally:
            bar.close()
            if pending or unsaved:
                self._publish(pending)
        return len(self) - before, len(changed.gone)

    def _publish(self, batch):
        """Puts files that were read into the index, and saves it."""
        index, catalogue = self._snapshot
        left_out = {name: told for name, told in batch.items() if isinstance(told, LeftOut)}
        told = [told for name, told in batch.items() if name not in left_out]
        catalogue, ids = catalogue.with_more([entry for entry, _ in told], left_out)
        if ids:
            index = index.changed(add=(ids, np.stack([row for _, row in told])))
        self._snapshot = _Snapshot(index, catalogue)
        storage.save(self.path, index, catalogue, self.model.fingerprint)

    def _nearest(self, row, count, seconds, left_out=None):
        index, catalogue = self._snapshot
        began = time.perf_counter()
        ids, distances = index.nearest(row, max(count, self.rerank) + (left_out is not None))
        if left_out is not None:
            others = ids != left_out
            ids, distances = ids[others], distances[others]
        seconds["search"] = time.perf_counter() - began
        scores = None
        if self.rerank and len(ids):
            began = time.perf_counter()
            scores = self.model.score(row, index.rows(ids))
            order = np.argsort(-scores, kind="stable")
            ids, distances, scores = ids[order], distances[order], scores[order]
            seconds["reranking"] = time.perf_counter() - began
        found = [
            Found(
                key,
                catalogue.entries[key],
                distance,
                self._cosine(distance),
                None if scores is None else float(scores[place]),
            )
            for place, (key, distance) in enumerate(
                zip(ids[:count].tolist(), distances.tolist(), strict=False)
            )
        ]
        return Answer(self.ranked_by, found, seconds)

    def _cosine(self, distance):
        radius = self.model.radius
        return None if radius is None else 1 - distance**2 / (2 * radius**2)


def _unknown(key):
    return RefusedError(f"There is no image of this id. Received: id={key}", status=404)
