"""The search in a folder of images, whose index is a collection that is kept up to date."""

import pathlib
import threading

import pyarrow as pa
import pyarrow.compute as pc

from tfdml import scale
from tfdml.checks import check
from tfdml.scale.layout import SEARCHED, STAMP, is_collection
from tfdml.scale.listed_images import SCHEMA, Listing
from tfdml.search.collection_search import CollectionSearch
from tfdml.search.picture_files import RejectedError, image_files

RERANKED = 100  # default number of images that a learned similarity reranks
_SHARD_SIZE = 500  # images, which is what a stop may lose


class FolderSearch(CollectionSearch):
    """Search by image in a folder, also several at once and during a refresh."""

    unchangeable = "Change the folder of the images, and refresh the index"

    def __init__(self, model, folder, index, *, rerank=None):
        if not pathlib.Path(folder).is_dir():
            raise FileNotFoundError(f"`images` must be a folder; there is none at {folder}")
        needed = "`rerank` needs a model with a learned similarity, as --loss pddm trains"
        check(model.learned or not rerank, needed, rerank=rerank)
        folder = pathlib.Path(folder).resolve()
        inside = pathlib.Path(index).resolve().is_relative_to(folder)
        check(not inside, "`index` must lie outside of the folder of images", index=str(index))
        if not is_collection(index):
            _begin(index, model, folder)
        collection, own, other = scale.Collection(index), model.fingerprint, "give another --index"
        made_by, searched = collection.model, collection.manifest.get(SEARCHED)
        expected = f"{index} must have been made by this model: {other}, or remove it"
        check(made_by == own, expected, model=own[:12], made_by=made_by[:12])
        expected = f"{index} must have been made of this folder: {other}, or remove it"
        check(searched == str(folder), expected, folder=str(folder), made_of=searched)
        super().__init__(model, index, root=folder)
        self.rerank = (RERANKED if model.learned else 0) if rerank is None else rerank
        self._refreshing, self._counts, self._stopping = threading.Lock(), (0, 0), False

    @property
    def refreshing(self):
        """(images embedded, images to embed) of the refresh under way; None without one."""
        return self._counts if self._refreshing.locked() else None

    @property
    def left_out(self):
        """{name: cause} of the files that the model cannot read."""
        return self.images.unreadable

    def refresh(self):
        """Updates the index to the folder, and saves it after every 500 images.

        Searches go on meanwhile. Returns the numbers of images added and removed.
        """
        self._begin_refresh()
        try:
            return self._refresh()
        finally:
            self._refreshing.release()

    def start_refresh(self):
        """Refreshes in the background; a `RejectedError` with 409 if a refresh is under way."""
        self._begin_refresh()

        def refresh():
            try:
                self._refresh()
            except Exception as error:  # the page shows it and the search goes on
                self.failure = str(error)
            finally:
                self._refreshing.release()

        threading.Thread(target=refresh, name="refresh", daemon=True).start()

    def stop(self):
        """Ends a refresh in the background after its current batch, and waits for that."""
        self._stopping = True
        with self._refreshing:
            pass

    def _begin_refresh(self):
        if not self._refreshing.acquire(blocking=False):
            raise RejectedError("A refresh is under way", status=409)
        self._counts, self.failure = (0, 0), None

    def _refresh(self):
        files = image_files(self.folder)
        images = self.images
        rows = images.collection.present()
        indexed = rows["path"].filter(pc.is_null(rows["error"])).to_pylist()
        known = not indexed or any(path in files for path in indexed)
        expected = f"{self.folder} must have some image of its index, {self.collection}: was the"
        advice = "disk not mounted? If all are new, remove the index or give another --index"
        check(known, f"{expected} {advice}", indexed=len(indexed))
        labels = [images.name(path).rpartition("/")[0] or None for path in files]
        listing = _listing(files, labels)
        done = scale.changing.update(self.collection, self.model, listing, watch=self._watch)
        return done.added + done.embedded_again - done.unreadable, done.removed

    def _watch(self, done, total):
        self._counts = done, total
        if self._stopping:
            raise InterruptedError("the search stops")


def _begin(index, model, folder):
    """Writes a collection of no images, the index of a folder."""
    identity = {"model": model.fingerprint, "dim": model.dim, "shard_size": _SHARD_SIZE}
    identity[SEARCHED] = str(folder)
    writer = scale.CollectionWriter(index)
    writer.check(identity)
    with writer.folder.only_writer():
        writer.begin(identity, _listing({}, []))
        writer.finish()


def _listing(files, labels):
    """The `Listing` of {path: stamp}."""
    schema = SCHEMA.append(pa.field(STAMP, pa.string()))
    batch = pa.record_batch([[*files], labels, [*files.values()]], schema=schema)
    return Listing(lambda: [batch])
