"""The list of the images of a collection: a folder, a pattern of paths, or a Parquet file."""

import hashlib
import json
import os
import re
import warnings
from pathlib import PurePosixPath

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from tfdml.checks import check
from tfdml.images.image_files import SUFFIXES, is_image, is_utf8
from tfdml.scale.collection import Collection
from tfdml.scale.layout import STATE, is_collection
from tfdml.scale.storage import around_path, file_system

SCHEMA = pa.schema([("path", pa.string()), ("label", pa.string())])
_AT_ONCE = 10_000  # rows


class Listing:
    """Paths and labels of images, in a fixed order. The row number is the id of an image.

    `batches` returns an iterator over `pa.RecordBatch` of `SCHEMA` and perhaps further columns;
    `images` is the number of rows, `digest` the SHA-256 of their columns, in order.
    """

    def __init__(self, batches):
        self.batches = batches
        self.images, digest = 0, hashlib.sha256()
        for batch in batches():
            self.schema, columns = batch.schema, [each.to_pylist() for each in batch.columns]
            rows = zip(*columns, strict=True)
            digest.update("".join(f"{json.dumps(row, default=str)}\n" for row in rows).encode())
            self.images += len(batch)
        self.digest = digest.hexdigest()

    def shards(self, size):
        """Cuts the list into tables of `size` rows; the last may have fewer."""
        return cut((pa.Table.from_batches([batch]) for batch in self.batches()), size)

    def table(self):
        """The whole list."""
        return pa.Table.from_batches(self.batches())

    def write(self, file):
        """Writes the list as a Parquet file."""
        with pq.ParquetWriter(file, self.schema) as writer:
            for batch in self.batches():
                writer.write_batch(batch)


def cut(tables, size):
    """Cuts the rows of tables into tables of `size` rows; the last may have fewer."""
    kept = None
    for table in tables:
        kept = table if kept is None else pa.concat_tables([kept, table])
        while len(kept) >= size:
            yield kept[:size]
            kept = kept[size:]
    if kept is not None and len(kept):
        yield kept


def list_images(images):
    """The `Listing` of a folder, a pattern or a Parquet file, as docs/scale.md describes them."""
    fs, root = file_system(images)
    address = _addresses(fs, images, root)
    pattern = re.search(r"[*?[]", root)
    if isinstance(fs, LocalFileSystem) and is_collection(root):
        rows = Collection(root).present()
        state = [name for name in STATE if name in rows.column_names]
        listing = Listing(rows.drop_columns(state).to_batches)
    elif fs.isdir(root):
        found = files_below(root) if isinstance(fs, LocalFileSystem) else fs.find(root)
        listing = _found_paths(fs, root, found, address, labelled=True)
    elif root.endswith(".parquet"):
        try:
            listing = Listing(lambda: _parquet_batches(fs, root, address, images))
        except pa.ArrowException as error:
            raise ValueError(f"{images} cannot be read ({error})") from error
    elif pattern:
        folder = root[: pattern.start()].rpartition("/")[0]
        found = fs.glob(root, detail=True).items()
        found = [path for path, about in found if about["type"] != "directory"]
        listing = _found_paths(fs, folder, found, address, labelled=False)
    else:
        expected = "a folder, a pattern such as 'photos/*.jpg', or a .parquet file"
        raise FileNotFoundError(f"`images` must be {expected}. Received: {images}")
    check(listing.images, "`images` must have images", images=images)
    return listing


def files_below(root):
    """The paths of all files below a local folder; warns of folders that cannot be listed."""
    found, errors = [], []  # which fsspec does not tell
    for folder, folders, names in os.walk(root, onerror=errors.append):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [os.path.join(folder, name).replace(os.sep, "/") for name in names]
    if errors:
        warnings.warn(f"ignored {len(errors):,} folders such as: {errors[0]}", stacklevel=3)
    return found


def _found_paths(fs, folder, found, address, labelled):
    """The images among the paths found below a folder, perhaps labelled by the folders in it."""
    below = folder.rstrip("/") + "/"
    if not all(path.startswith(below) for path in found):  # at the root of an archive
        below = ""
    inner = [path.removeprefix(below) for path in found]
    shown = [path for path in inner if not path.startswith(".") and "/." not in path]
    found = sorted(path for path in shown if is_image(PurePosixPath(path)))
    others = set(shown).difference(found)
    if isinstance(fs, LocalFileSystem):
        others = [path for path in others if not fs.isdir(below + path)]  # a link to a folder
    if others:
        expected = f"{len(others):,} files that do not end in {', '.join(SUFFIXES)}"
        warnings.warn(f"ignored {expected}", stacklevel=3)
    wrong = [path for path in found if not is_utf8(below + path)]
    if wrong:
        what = f"{len(wrong):,} paths that are not valid UTF-8: {wrong[0]!a}"
        warnings.warn(f"ignored {what}", stacklevel=3)
    paths = sorted({*found}.difference(wrong))
    folders = [path.partition("/") for path in paths]
    labels = [folder if labelled and slash else None for folder, slash, _ in folders]
    addresses = [address(below + path) for path in paths]
    table = pa.table([addresses, labels], schema=SCHEMA)
    return Listing(lambda: table.to_batches(_AT_ONCE))


def _parquet_batches(fs, root, address, path):
    folder = "".join(root.rpartition("/")[:2])
    with fs.open(root, "rb") as file:
        parquet = pq.ParquetFile(file)
        names = parquet.schema_arrow.names
        check("path" in names, f"{path} must have a column `path`", columns=names)
        taken = sorted({*STATE, "embedding", "vector"} & {*names})
        check(not taken, f"{path} must have no columns of these names", taken=taken)
        others = [name for name in names if name not in SCHEMA.names]
        for rows in parquet.iter_batches(_AT_ONCE):
            paths = rows["path"].cast(pa.string()).to_pylist()
            check(all(paths), f"each row of {path} must have a `path`", rows=len(rows))
            labels = pa.nulls(len(rows), pa.string())
            if "label" in names:
                labels = _texts(rows["label"], path)
            addresses = [_from(each, folder, address) for each in paths]
            yield pa.record_batch(
                [pa.array(addresses), labels, *(rows[name] for name in others)],
                names=[*SCHEMA.names, *others],
            )


def _texts(labels, path):
    """Labels as texts; null for null and NaN, an error for numbers that are not whole."""
    if pa.types.is_dictionary(labels.type):
        labels = labels.dictionary_decode()
    is_float = pa.types.is_floating(labels.type)
    if is_float:
        labels = labels.cast(pa.float64())
        labels = pc.if_else(pc.is_nan(labels), None, labels)
        largest = pc.max(pc.abs(labels)).as_py() or 0
        exact = f"`label` of {path} must be texts, or numbers that a float holds exactly"
        check(largest < 2**53, exact, largest=largest)
    if is_float or pa.types.is_decimal(labels.type):
        labels = labels.cast(pa.int64())
    texts = labels.cast(pa.string())
    blank = pc.any(pc.equal(pc.utf8_trim_whitespace(texts), "")).as_py()
    check(not blank, f"`label` of {path} must be null where there is none", label="")
    return texts


def _from(path, folder, address):
    """The address of a path in a list, which may be relative to the folder of the list."""
    path = os.path.expanduser(path)
    is_whole = "://" in path or os.path.isabs(path)
    return path if is_whole else address(folder + os.path.normpath(path))


def _addresses(fs, images, root):
    """A function from paths of a file system to those of local files, without `..`, or to URLs."""
    if isinstance(fs, LocalFileSystem):  # as queries are compared with it
        return os.path.normpath
    before, after = around_path(images, root)
    return lambda path: f"{before}{path}{after}"
