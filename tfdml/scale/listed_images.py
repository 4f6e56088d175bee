"""The list of the images of a collection: a folder, a pattern of paths, or a Parquet file."""

import hashlib
import json
import math
import os
import re
import warnings
from pathlib import PurePosixPath

import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from tfdml.checks import Bare, check
from tfdml.images.image_files import SUFFIXES, is_image, is_utf8
from tfdml.scale.storage import around_path, file_system

SCHEMA = pa.schema([("path", pa.string()), ("label", pa.string())])
_AT_ONCE = 10_000  # rows
_EXACT_BITS = {pa.float16(): 11, pa.float32(): 24, pa.float64(): 53}  # of whole numbers


class Listing:
    """Paths and labels of images, in a fixed order. The row number is the id of an image.

    `batches` returns an iterator over `pa.RecordBatch` of `SCHEMA`; `images` is the number of rows,
    `digest` the SHA-256 of the paths and labels, in order.
    """

    def __init__(self, batches):
        self.batches = batches
        self.images, digest = 0, hashlib.sha256()
        for batch in batches():
            rows = zip(batch["path"].to_pylist(), batch["label"].to_pylist(), strict=True)
            digest.update("".join(f"{json.dumps(row)}\n" for row in rows).encode())
            self.images += len(batch)
        self.digest = digest.hexdigest()

    def shards(self, size):
        """Cuts the list into tables of `size` rows; the last may have fewer."""
        return cut((pa.Table.from_batches([batch]) for batch in self.batches()), size)

    def write(self, file):
        """Writes the list as a Parquet file."""
        with pq.ParquetWriter(file, SCHEMA) as writer:
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
    if fs.isdir(root):
        listing = _found_paths(fs, root, _below(fs, root), address, labelled=True)
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


def _below(fs, root):
    """The paths of all files below a folder; warns of local folders that cannot be listed."""
    if not isinstance(fs, LocalFileSystem):
        return fs.find(root)
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
    folder, first = "".join(root.rpartition("/")[:2]), 0
    with fs.open(root, "rb") as file:
        parquet = pq.ParquetFile(file)
        names = parquet.schema_arrow.names
        check("path" in names, f"{path} must have a column `path`", columns=names)
        columns = [name for name in SCHEMA.names if name in names]
        kind = _kind(parquet.schema_arrow.field("path").type)
        is_number = pa.types.is_primitive(kind) or pa.types.is_decimal(kind)
        check(not is_number, f"`path` of {path} must be texts", type=Bare(kind))
        for rows in parquet.iter_batches(_AT_ONCE, columns=columns):
            paths = rows["path"].cast(pa.string()).to_pylist()
            check(all(paths), f"each row of {path} must have a `path`", rows=len(rows))
            labels = _labels(rows["label"], path, first) if "label" in names else [None] * len(rows)
            addresses = [_from(each, folder, address) for each in paths]
            yield pa.record_batch([addresses, labels], schema=SCHEMA)
            first += len(rows)


def _kind(column_type):
    """The type of the values, also of a categorical column."""
    is_categorical = pa.types.is_dictionary(column_type)
    return column_type.value_type if is_categorical else column_type


def _labels(column, path, first):
    """The labels of a column, whose first row has this number, as texts; None for null and NaN."""
    kind = _kind(column.type)
    is_number = pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    labels = (column if is_number else column.cast(pa.string())).to_pylist()
    for row, label in enumerate(labels, first):
        if is_number and label is not None:
            exact = abs(label) < 2 ** _EXACT_BITS.get(kind, math.inf) and label % 1 == 0
            expected = f"`label` of {path} must be texts or exact whole numbers"
            check(exact or math.isnan(label), expected, row=row, label=label)
            label = labels[row - first] = None if math.isnan(label) else str(int(label))
        named = label is None or bool(label.strip())
        check(named, f"`label` of {path} must be null where there is none", row=row)
    return labels


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
