"""The embeddings of a collection on disk: a manifest, the list of the images, and shards.

    manifest.json           format, model, dim, images, shard_size, shards, list: see `manifest_of`;
                            once all shards are written also `files`, their checksums
    list.parquet            path, label: the row number is the id
    shards/00000.parquet    id, path, embedding, label, error: the images from id 0, in order

A shard that exists is whole.
"""

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tfdml.checks import check
from tfdml.progress import progress
from tfdml.scale import FORMAT, LIST, MANIFEST, SHARDS, shard_name
from tfdml.scale.checksums import checksums, opened, sealed
from tfdml.scale.storage import NO_FILE, Folder

_SURELY = 100  # images that are not all broken
_WHAT = {
    "format": "in another format",
    "model": "of another model",
    "dim": "of another length",
    "shard_size": "in shards of another size",
    "images": "of another list of images",
    "list": "of a list of as many images, with other paths or labels",
}


def manifest_of(*, model, dim, shard_size, listing=None):
    """What identifies the embeddings of a collection.

    Args:
        model: Fingerprint of the model.
        dim: Length of an embedding.
        shard_size: Images of a shard.
        listing: `Listing`; None if it is not known yet.
    """
    known = {"format": FORMAT, "model": model, "dim": dim, "shard_size": shard_size}
    if listing is None:
        return known
    shards = -(-listing.images // shard_size)
    return {**known, "images": listing.images, "shards": shards, "list": listing.digest}


class CollectionWriter:
    """The embeddings of a collection.

    Args:
        url: Folder or URL.
    """

    def __init__(self, url):
        self.folder = Folder(url)
        self._checksums = {}  # of the files written by this object

    def check(self, manifest):
        """Checks that the folder holds what the manifest describes, or nothing.

        Raises:
            ValueError: If it holds something else.
            OSError: If it cannot be written to.
        """
        self.folder.check_writable()
        names = {name for name in self.folder.names() if not name.startswith(".")}
        if MANIFEST not in names:
            expected = f"{self.folder} must be a new or empty folder"
            check(not names, expected, found=sorted(names)[:5])
            return
        found = self._manifest()
        for name, what in _WHAT.items():
            if name in manifest and found.get(name) != manifest[name]:
                wrong = f"{self.folder} holds embeddings {what}. Choose another --out"
                if name in ("images", "list"):
                    wrong += f", or go on with its own: --images {self.folder}/{LIST}"
                if isinstance(manifest[name], str):  # a digest, which says nothing more
                    raise ValueError(wrong)
                check(False, wrong, found=found.get(name), expected=manifest[name])

    def begin(self, manifest, listing):
        """Writes the manifest and the list, unless they exist; removes what killed writers left."""
        names = self.folder.names()
        if MANIFEST not in names:
            self._write_manifest(manifest)
        present = names | {f"{SHARDS}/{name}" for name in self.folder.names(SHARDS)}
        found = self._manifest()
        known = found.get("files", {})
        kept = {name: known[name] for name in known if name in present}
        if kept != known:  # a missing file will be written anew
            self._write_manifest({**found, "files": kept})
        if LIST not in names:
            self.folder.write(LIST, listing.write)
        for inner in ("", SHARDS):
            self.folder.remove_unfinished(inner)

    def missing(self, shards):
        """The numbers of the missing shards, of a number of shards."""
        names = self.folder.names(SHARDS)
        return [number for number in range(shards) if shard_name(number) not in names]

    def write_shard(self, number, first, images, rows):
        """Writes a shard.

        Args:
            number: Of the shard.
            first: Id of its first image.
            images: Table of the paths and labels of its images.
            rows: Table of `rows_of` of the same images.

        Raises:
            ValueError: If none of many images could be read.
            RuntimeError: If there is not one row for each image.
            OSError: If it cannot be written.
        """
        ids = rows["id"].to_numpy()
        if not np.array_equal(ids, np.arange(first, first + len(images))):
            raise RuntimeError(f"shard {number} must have one row for each image, in order")
        if rows["embedding"].null_count == len(images) >= _SURELY:
            none = f"none of the {len(images):,} images of shard {number} can be read, such as"
            reason = rows["error"][0].as_py()
            hint = " (is their disk mounted?)" if reason == NO_FILE else ""
            raise ValueError(f"{none} {images['path'][0]}: {reason}{hint}")
        columns = [rows["id"], images["path"], rows["embedding"], images["label"], rows["error"]]
        table = pa.table(columns, ["id", "path", "embedding", "label", "error"])
        options = {"use_dictionary": ["label", "error"]}
        name, content = f"{SHARDS}/{shard_name(number)}", io.BytesIO()
        pq.write_table(table, content, write_page_checksum=True, **options)
        self.folder.write(name, lambda file: file.write(content.getbuffer()))
        content.seek(0)
        self._checksums[name] = checksums(content)

    def finish(self, shards):
        """Writes the checksums of the list and of a number of shards into the manifest.

        Shards that an earlier process wrote are read once more.

        Raises:
            ValueError: If one of these is damaged.
        """
        manifest = self._manifest()
        known = {**manifest.get("files", {}), **self._checksums}
        names = [LIST, *(f"{SHARDS}/{shard_name(number)}" for number in range(shards))]
        for name in [name for name in names if name not in known]:
            with self.folder.open(name) as file:
                known[name] = checksums(file)
                if name != LIST:
                    file.seek(0)
                    self._check_pages(name, file)
        files = {name: known[name] for name in names}
        if files != manifest.get("files"):
            self._write_manifest({**manifest, "files": files})

    def _check_pages(self, name, file):
        try:
            pq.read_table(file, page_checksum_verification=True)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{self.folder}/{name} is damaged ({error}): delete it") from error

    def _manifest(self):
        with self.folder.open(MANIFEST) as file:
            return opened(file.read(), f"{self.folder}/{MANIFEST}", "choose another --out")

    def _write_manifest(self, manifest):
        self.folder.write(MANIFEST, lambda file: file.write(sealed(manifest).encode()))

    def unreadable(self, shards):
        """The number of images without an embedding, from the footers of all shards.

        Raises:
            ValueError: If a shard is damaged.
        """
        count = 0
        for number in progress("Counting", range(shards), unit="shard"):
            name = f"{SHARDS}/{shard_name(number)}"
            with self.folder.open(name) as file:
                try:
                    about = pq.ParquetFile(file).metadata
                except pa.ArrowException as error:
                    raise ValueError(
                        f"{self.folder}/{name} is damaged ({error}): delete it"
                    ) from error
            errors = about.schema.names.index("error")
            groups = (about.row_group(group) for group in range(about.num_row_groups))
            nulls = sum(group.column(errors).statistics.null_count for group in groups)
            count += about.num_rows - nulls
        return count


def rows_of(ids, embeddings, problems):
    """A table of embeddings.

    Args:
        ids: (n,) int64.
        embeddings: (n, dim) float32.
        problems: n reasons why images have no embedding, None for those that have one.

    Returns:
        Table with the columns id, embedding and error.
    """
    error = pa.array(problems, pa.string())
    missing = error.is_valid()
    read = ~missing.to_numpy(zero_copy_only=False)
    values = pa.array(np.asarray(embeddings, np.float32)[read].reshape(-1))
    ends = np.cumsum(read, dtype=np.int32) * np.int32(embeddings.shape[1])
    # Not of a fixed size, of which pyarrow below 26 cannot keep nulls.
    rows = pa.ListArray.from_arrays(np.append(np.int32(0), ends), values, mask=missing)
    return pa.table([pa.array(ids, pa.int64()), rows, error], ["id", "embedding", "error"])
