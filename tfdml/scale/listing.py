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


class Listing:
    """Paths and labels of images, in a fixed order. The row number is the id of an image.

    Args:
        batches: Function that returns an iterator over `pa.RecordBatch` of `SCHEMA`.

    Attributes:
        images: Number of rows.
        digest: SHA-256 of the paths and labels, in order.

    Raises:
        ValueError: If a path is missing.
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
    """The images of a collection.

    Args:
        images: A folder, whose images are found in all folders below it, with the name of the first
            of these as the label; a pattern of paths such as `photos/**/*.jpg`, without labels; or
            a Parquet file with a column `path` and perhaps `label`, in which relative paths start
            at its folder, and labels are texts or whole numbers, also stored as floats, or null or
            NaN. All may be URLs, such as `s3://bucket/photos`. Folders and patterns leave out
            hidden files, links to folders, and, with a warning, files without the suffix of an
            image, those whose path is not valid UTF-8 and local folders that cannot be listed.

    Returns:
        `Listing`.

    Raises:
        FileNotFoundError: If there is no such folder or file.
        ValueError: If it has no images, the Parquet file no paths, or columns of other types; or if
            a label is empty or no whole number: names its row, from 0.
    """
    fs, root = file_system(images)
    address = _addresses(fs, images, root)
    pattern = re.search(r"[*?[]", root)
    if fs.isdir(root):
        listing = _of_paths(fs, root, _below(fs, root), address, labelled=True)
    elif root.endswith(".parquet"):
        try:
            listing = Listing(lambda: _of_parquet(fs, root, address, images))
        except pa.ArrowException as error:
            raise ValueError(f"{images} cannot be read ({error})") from error
    elif pattern:
        folder = root[: pattern.start()].rpartition("/")[0]
        found = fs.glob(root, detail=True).items()
        found = [path for path, about in found if about["type"] != "directory"]
        listing = _of_paths(fs, folder, found, address, labelled=False)
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


def _of_paths(fs, folder, found, address, labelled):
    """The images among the paths found below a folder, labelled by the folders in it."""
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
    paths = [path for path in found if is_utf8(below + path)]
    if len(paths) < len(found):
        wrong = next(path for path in found if not is_utf8(below + path))
        count = len(found) - len(paths)
        warnings.warn(f"ignored {count:,} paths that are not valid UTF-8: {wrong!a}", stacklevel=3)

    def batches():
        for first in range(0, len(paths), _AT_ONCE):
            some = paths[first : first + _AT_ONCE]
            labels = [_first_folder(path) if labelled else None for path in some]
            yield _batch([address(below + path) for path in some], labels)

    return Listing(batches)


def _first_folder(path):
    return path.partition("/")[0] if "/" in path else None


def _of_parquet(fs, root, address, path):
    """The batches of a Parquet file of paths."""
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
            yield _batch([_from(each, folder, address) for each in paths], labels)
            first += len(rows)


def _kind(column_type):
    """The type of the values, also of a categorical column."""
    is_categorical = pa.types.is_dictionary(column_type)
    return column_type.value_type if is_categorical else column_type


def _labels(column, path, first):
    """The labels of a column as texts, such as "7" for 7.0; None for null and NaN.

    Args:
        column: Arrow array.
        path: Of the list, for errors.
        first: Row number of the first label, for errors.
    """
    kind = _kind(column.type)
    if pa.types.is_floating(kind):  # which tells whole numbers apart up to this one
        end = 2 ** {16: 11, 32: 24, 64: 53}[kind.bit_width]
    elif pa.types.is_decimal(kind):
        end = math.inf
    else:
        end, column = None, column.cast(pa.string())
    labels = column.to_pylist()
    for row, label in enumerate(labels):
        if end is not None and label is not None:
            exact = math.isnan(label) or (abs(label) < end and label % 1 == 0)
            expected = f"`label` of {path} must be texts or exact whole numbers"
            check(exact, expected, row=first + row, label=label)
            label = labels[row] = None if math.isnan(label) else str(int(label))
        named = label is None or bool(label.strip())
        check(named, f"`label` of {path} must be null where there is none", row=first + row)
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


def _batch(paths, labels):
    return pa.record_batch([paths, labels], schema=SCHEMA)
