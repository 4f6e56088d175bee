"""The search in a folder of images, which keeps its index up to date."""

import pathlib
import random
import threading

from tfdml.checks import check
from tfdml.quiet import progress
from tfdml.scale.pace import Pace
from tfdml.search.catalogue import Entry, LeftOut, empty, load
from tfdml.search.picture_files import RejectedError, Stamp, image_files, read, read_header
from tfdml.search.picture_search import PictureSearch

RERANKED = 100  # default number of images that a learned similarity reranks
_BATCH_BYTES = 64_000_000  # of files read at once
_NEVER = Stamp(-1, -1)  # matches no file, so that an unreadable one is tried again


class ImageSearch(PictureSearch):
    """Search by image in a folder, also several at once and during a refresh."""

    def __init__(self, model, folder, path, *, rerank=None):
        if not pathlib.Path(folder).is_dir():
            raise FileNotFoundError(f"`images` must be a folder; there is none at {folder}")
        needed = "`rerank` needs a model with a learned similarity, as --loss pddm trains"
        check(model.learned or not rerank, needed, rerank=rerank)
        self.model, self.path = model, pathlib.Path(path)
        self.folder = pathlib.Path(folder).resolve()
        inside = self.path.resolve().is_relative_to(self.folder)
        check(not inside, "`index` must lie outside of the folder of images", index=str(path))
        self.rerank = (RERANKED if model.learned else 0) if rerank is None else rerank
        if self.path.exists():
            self.images = self._saved = load(self.path, model.fingerprint)
        else:
            self.images, self._saved = empty(model.dim), None
        self.failure = None  # error message of the last refresh
        self._refreshing = threading.Lock()
        self._done = self._total = 0
        self._stopping = False

    def __len__(self):
        return len(self.images.entries)

    @property
    def refreshing(self):
        """(images embedded, new images) of the refresh under way; None without one."""
        return (self._done, self._total) if self._refreshing.locked() else None

    @property
    def left_out(self):
        """{name: cause} of the files that the model cannot read."""
        return {name: why.cause for name, why in self.images.left_out.items()}

    def content(self, key):
        """The bytes of an image's file; a `RejectedError` if it changed since it was indexed."""
        entry = self.entry(key)
        try:
            return read(self.folder, entry.name, entry.stamp)
        except OSError as error:
            raise RejectedError("The file of the image cannot be read", status=404) from error

    def sample(self, count, seed):
        """Some images of the index, drawn at random, as {id: `Entry`}."""
        entries = list(self.images.entries.items())
        return dict(random.Random(seed).sample(entries, min(count, len(entries))))

    def refresh(self, *, show=False):
        """Updates the index to the folder, and saves it about every minute and on interruption.

        Searches meanwhile use the previous index. `show` draws a bar in a terminal. Returns the
        numbers of images added and removed.
        """
        self._begin_refresh()
        try:
            return self._refresh(show)
        finally:
            self._refreshing.release()

    def start_refresh(self):
        """Refreshes in the background; a `RejectedError` with 409 if a refresh is under way."""
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
        entries = self.images.entries
        known = not entries or any(entry.name in files for entry in entries.values())
        expected = f"{self.folder} must have some image of {self.path}: is it the right folder?"
        advice = "If so, remove that file or give another --index"
        check(known, f"{expected} {advice}", indexed=len(entries))
        before = len(self)
        self.images, new = self.images.matching(files)
        self._total, kept = len(new), len(self)
        pending, pace = {}, Pace()
        bar = progress("Embedding", total=self._total, shown=show)
        try:
            for batch in embedded(self.model, self.folder, new):
                pending.update(batch)
                self._done += len(batch)
                bar.update(len(batch))
                pace.save(self._publish, pending)
                if self._stopping:
                    break
        finally:
            bar.close()
            if pending or self.images is not self._saved:
                self._publish(pending)
        return len(self) - kept, before - kept

    def _publish(self, files):
        """Moves embedded files to the index, and saves it."""
        self.images = self.images.with_more(files)
        files.clear()  # also if it cannot be saved, else it would be added twice
        self.images.save(self.path, self.model.fingerprint)
        self._saved = self.images


def embedded(model, folder, files):
    """Yields {name: `LeftOut`, or (`Entry`, row)} of batches of {name: `Stamp`} of a folder."""
    done, pending, size = {}, [], 0
    for number, (name, stamp) in enumerate(files.items(), 1):
        try:
            content = read(folder, name, stamp)
            pending.append((Entry(name, stamp, *read_header(content)), content))
            size += len(content)
        except FileNotFoundError:
            pass
        except RejectedError as error:
            done[name] = LeftOut(stamp, str(error))
        except OSError as error:
            done[name] = LeftOut(_NEVER, error.strerror or str(error))
        count = len(done) + len(pending)
        is_full = count >= model.batch_size or size >= _BATCH_BYTES
        if count and (is_full or number == len(files)):
            rows = model.embed_pictures([content for _, content in pending]) if pending else []
            for (entry, _), row in zip(pending, rows, strict=True):
                rejected = isinstance(row, RejectedError)
                done[entry.name] = LeftOut(entry.stamp, str(row)) if rejected else (entry, row)
            yield done
            done, pending, size = {}, [], 0
