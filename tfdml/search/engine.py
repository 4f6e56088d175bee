"""The search engine: finds images of a folder by an image, and keeps its index up to date."""

import pathlib
import random
import threading
import time
from typing import NamedTuple

import numpy as np

from tfdml.checks import check
from tfdml.progress import progress
from tfdml.search.by_picture import Answer, Found, PictureSearch
from tfdml.search.catalogue import Catalogue, LeftOut, load, save
from tfdml.search.images import RejectedError, image_files, read
from tfdml.search.index import Index
from tfdml.search.refreshing import changes, embedded

RERANKED = 100  # default number of images that a learned similarity reranks
_SAVE_EVERY = 60.0  # seconds of embedding that a crash may lose
_SAVE_SHARE = 20  # least ratio of that time to the time of saving


class _Snapshot(NamedTuple):
    """An index and its catalogue with the same ids; both are immutable."""

    index: Index
    catalogue: Catalogue


class ImageSearch(PictureSearch):
    """Search by image in a folder. Searches may run concurrently, also during a refresh.

    Args:
        model: A `SearchModel`.
        folder: Path of the images.
        path: File of the index; loaded if it exists.
        rerank: Least number of nearest images that a learned similarity reranks, 0 for none. If
            None, 100 for a model with a learned similarity.
        approximate: As for `Index`.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If the index belongs to another model, is broken or lies in the folder, or
            `rerank` is above 0 and the model has no learned similarity.
    """

    def __init__(self, model, folder, path, *, rerank=None, approximate=False):
        if not pathlib.Path(folder).is_dir():
            raise FileNotFoundError(f"`images` must be a folder; there is none at {folder}")
        needed = "`rerank` needs a model with a learned similarity, as --loss pddm trains"
        check(model.learned or not rerank, needed, rerank=rerank)
        super().__init__(model)
        self.folder = pathlib.Path(folder).resolve()
        self.path = pathlib.Path(path)
        inside = self.path.resolve().is_relative_to(self.folder)
        check(not inside, "`index` must lie outside of the folder of images", index=str(path))
        self.rerank = (RERANKED if model.learned else 0) if rerank is None else rerank
        parts = Index(model.dim, approximate=approximate), Catalogue()
        if self.path.exists():
            parts = load(self.path, model.fingerprint, approximate=approximate)
        self._snapshot = _Snapshot(*parts)
        self._refreshing = threading.Lock()
        self._done = self._total = 0
        self._stopping = False
        self.failure = None  # error message of the last refresh

    def __len__(self):
        return len(self._snapshot.index)

    @property
    def ranked_by(self):
        """The score that results are ordered by."""
        by_distance = "distance" if self.model.radius is None else "cosine"
        return "similarity" if self.rerank else by_distance

    @property
    def refreshing(self):
        """(images embedded, new images) of the refresh under way; None without one."""
        return (self._done, self._total) if self._refreshing.locked() else None

    @property
    def left_out(self):
        """{name: cause} of the files that the model cannot read."""
        return {name: why.cause for name, why in self._snapshot.catalogue.left_out.items()}

    @property
    def exact(self):
        """Whether a query is compared with the embeddings of all images."""
        return not self._snapshot.index.cells

    def by_id(self, key, count):
        """The images nearest to one of the index, without itself.

        Args:
            key: Its id.
            count: Images to find.

        Raises:
            RejectedError: With 404, if no image has this id.
        """
        index, catalogue = self._snapshot
        catalogue.entry(key)
        [row] = index.rows([key])
        return self._nearest(row, count, {}, left_out=key)

    def entry(self, key):
        """The catalogue entry of an image.

        Raises:
            RejectedError: With 404, if no image has this id.
        """
        return self._snapshot.catalogue.entry(key)

    def content(self, key):
        """The bytes of an image's file, unchanged since it was indexed.

        Raises:
            RejectedError: With 404, if no image has this id or its file is gone; with 410, if the
                file has changed.
        """
        entry = self.entry(key)
        try:
            return read(self.folder, entry.name, entry.stamp)
        except OSError as error:
            raise RejectedError("The file of the image cannot be read", status=404) from error

    def sample(self, count, seed):
        """Some images of the index, drawn at random, as {id: `Entry`}."""
        entries = list(self._snapshot.catalogue.entries.items())
        return dict(random.Random(seed).sample(entries, min(count, len(entries))))

    def refresh(self, *, show=False):
        """Updates the index to the folder: embeds new images, removes missing ones, and saves it.

        Searches meanwhile use the previous index. Progress is saved about every minute, and on
        interruption.

        Args:
            show: Whether to show a progress bar.

        Returns:
            The numbers of images added and removed.

        Raises:
            RejectedError: With 409, if a refresh is under way.
            ValueError: If the folder has none of the images of the index any more.
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
            RejectedError: With 409, if a refresh is under way.
        """
        self._begin_refresh()

        def refresh():
            try:
                self._refresh(show=False)
            except Exception as error:  # the page shows it and the search goes on
                self.failure = str(error)
            finally:
                self._refreshing.release()

        threading.Thread(target=refresh, name="refresh", daemon=True).start()

    def stop(self):
        """Ends a refresh in the background after its current batch, and waits until it is saved."""
        self._stopping = True
        with self._refreshing:
            pass

    def _begin_refresh(self):
        if not self._refreshing.acquire(blocking=False):
            raise RejectedError("A refresh is under way", status=409)
        self._done, self._total, self.failure = 0, 0, None

    def _refresh(self, show):
        files = image_files(self.folder)
        index, catalogue = self._snapshot
        entries = catalogue.entries
        known = not entries or any(entry.name in files for entry in entries.values())
        expected = f"{self.folder} must have some image of {self.path}: is it the right folder?"
        advice = "If so, remove that file or give another --index"
        check(known, f"{expected} {advice}", indexed=len(entries))
        gone, cleared, new = changes(catalogue, files)
        self._total = len(new)
        if gone or cleared:
            catalogue = catalogue.without(gone, cleared)
            self._snapshot = _Snapshot(index.changed(remove=gone), catalogue)
        before = len(self)
        unsaved = bool(gone or cleared) or not self.path.exists()
        pending, wait, saved = {}, _SAVE_EVERY, time.monotonic()
        bar = progress("Embedding", total=self._total, shown=show)
        try:
            for batch in embedded(self.model, self.folder, new):
                pending.update(batch)
                self._done += len(batch)
                bar.update(len(batch))
                if time.monotonic() - saved > wait:
                    began, unsaved = time.monotonic(), True
                    self._publish(pending)
                    unsaved, saved = False, time.monotonic()
                    wait = max(_SAVE_EVERY, _SAVE_SHARE * (saved - began))
                if self._stopping:
                    break
        finally:
            bar.close()
            if pending or unsaved:
                self._publish(pending)
        return len(self) - before, len(gone)

    def _publish(self, batch):
        """Moves a batch of files to the index, and saves it."""
        index, catalogue = self._snapshot
        left_out = {name: each for name, each in batch.items() if isinstance(each, LeftOut)}
        pairs = [each for name, each in batch.items() if name not in left_out]
        catalogue, ids = catalogue.with_more([entry for entry, _ in pairs], left_out)
        if ids:
            index = index.changed(add=(ids, np.stack([row for _, row in pairs])))
        self._snapshot = _Snapshot(index, catalogue)
        batch.clear()  # also if it cannot be saved, else it would be added twice
        save(self.path, index, catalogue, self.model.fingerprint)

    def _nearest(self, row, count, seconds, left_out=None):
        index, catalogue = self._snapshot
        began = time.perf_counter()
        ids, distances = index.nearest(row, max(count, self.rerank) + (left_out is not None))
        if left_out is not None:
            others = ids != left_out
            ids, distances = ids[others], distances[others]
        seconds["search"] = time.perf_counter() - began
        scores = [None] * len(ids)
        if self.rerank and len(ids):
            began = time.perf_counter()
            learned = self.model.score(row, index.rows(ids))
            order = np.argsort(-learned, kind="stable")
            ids, distances, scores = ids[order], distances[order], learned[order].tolist()
            seconds["reranking"] = time.perf_counter() - began
        cosines = self._cosines(distances)
        entries = (catalogue.entries[key] for key in ids.tolist())
        found = list(map(Found, ids.tolist(), entries, distances.tolist(), cosines, scores))
        return Answer(self.ranked_by, found[:count], seconds)
