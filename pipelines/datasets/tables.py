"""Images inside tables, written as files once: Parquet, Hugging Face; and shards of WebDataset."""

import json
import os
import pathlib
import re

from pipelines.datasets import given_path
from pipelines.datasets.image_list import WORDS, ImageList, checked_dataset, numbered, parts_of
from tfdml.checks import check
from tfdml.files import kept, read_text, unpacked, write_text
from tfdml.images.image_files import is_image
from tfdml.images.image_headers import readable
from tfdml.quiet import progress


def load(data_dir=None, skip_invalid=False, training=True, *, file_format, name=None):
    """Images of tables. Parts named by `WORDS` are kept if their classes differ, else halved.

    Args:
        data_dir, skip_invalid, training: As for `pipelines.load`.
        file_format: `"parquet"`: files with a column of encoded images and a column `label` or of
            class labels of Hugging Face; `"webdataset"`: tar files with KEY.jpg and KEY.cls, or
            KEY.json with a `label`.
        name: A data set of Hugging Face: a folder of `save_to_disk`, or a name on the hub.
    """
    if name is not None:
        name = os.path.expanduser(name)
        data_dir = name if pathlib.Path(name).is_dir() else _downloaded(name)
    path = given_path(file_format, data_dir, "a file or a folder of files")
    rows = _shard_rows(path) if file_format == "webdataset" else _table_rows(path)
    paths, words, parts = zip(*rows, strict=True)
    labels, class_names = numbered([str(word) for word in words])
    images = ImageList(paths, labels, class_names, parts=parts_of(parts, labels))
    return checked_dataset(name or file_format, images, skip_invalid, training)


def _downloaded(name):
    from huggingface_hub import snapshot_download  # optional

    return snapshot_download(name, repo_type="dataset", allow_patterns="*.parquet")


def _table_rows(path):
    """(path, label, part) of the images in Parquet files, or in Arrow files of Hugging Face."""
    import pyarrow as pa  # optional
    import pyarrow.parquet as pq

    files = _files(path, ".parquet", ".arrow")

    def batches(file):
        is_arrow = file.suffix == ".arrow"
        try:
            opened = pa.ipc.open_stream(file) if is_arrow else pq.ParquetFile(file)
            yield from opened if is_arrow else opened.iter_batches(64)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{file} is cut off or no table ({error})") from error

    def write(folder):
        listed = []
        for file in progress("Reading", files):
            for batch in batches(file):
                image, (label, names) = _image_of(batch.schema), _label_of(batch.schema)
                for row in batch.to_pylist():
                    expected = f"{file} must have a column of encoded images, and `label`"
                    check(image in row and label in row, expected, columns=[*row])
                    if row[label] is None or (names and row[label] == -1):  # as of test images
                        continue
                    content = _content_of(row[image])
                    check(content, f"{file} must have an image in each row", label=row[label])
                    inner = folder / f"{len(listed) // 1000:05}" / f"{len(listed):08}"
                    inner.parent.mkdir(exist_ok=True)
                    inner.write_bytes(readable(content))
                    word = names[row[label]] if names else row[label]
                    listed.append((str(inner.relative_to(folder)), word, _part_of(file)))
        write_text(folder / "rows.json", json.dumps(listed))

    folder = kept(path.name, files, write)
    listed = json.loads(read_text(folder / "rows.json"))
    check(listed, f"{path} must have images with labels", images=0)
    return [(str(folder / inner), word, part) for inner, word, part in listed]


def _label_of(schema):
    """The column of labels, and the names of classes that Hugging Face states."""
    stated = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    for column, kind in stated.get("info", {}).get("features", {}).items():
        if kind.get("_type") == "ClassLabel":
            return column, kind["names"]
    return "label", None


def _content_of(cell):
    """The bytes of an image in a cell, or of the file that it names, as `datasets` reads it."""
    if isinstance(cell, dict):
        return cell["bytes"] or (cell["path"] and pathlib.Path(cell["path"]).read_bytes())
    return cell


def _image_of(schema):
    """The column of encoded images: of Hugging Face, named `image`, or else the first of bytes."""
    types = {field.name: str(field.type) for field in schema}
    structs = [name for name, type_ in types.items() if re.match(r"struct<.*\bbytes: ", type_)]
    binary = [name for name, type_ in types.items() if type_ in ("binary", "large_binary")]
    return next(iter([*structs, *sorted(binary, key=lambda name: name != "image")]), None)


def _shard_rows(path):
    """(path, label, part) of the images in tar files."""
    rows = []
    for shard in [path] if path.is_dir() and not any(path.glob("*.tar")) else _files(path, ".tar"):
        for file in sorted(filter(is_image, unpacked(shard).rglob("*"))):
            beside = file.with_name(file.name.partition(".")[0])
            label, about = beside.with_suffix(".cls"), beside.with_suffix(".json")
            if label.exists():
                word = read_text(label).strip()
            else:
                word = json.loads(read_text(about)).get("label") if about.exists() else None
            check(word is not None, f"{file} must have a label in {label.name} or {about.name}")
            rows.append((str(file), word, _part_of(shard)))
    check(rows, f"{path} must have images", images=0)
    return rows


def _files(path, *suffixes):
    files = [path] if path.is_file() else sorted(f for s in suffixes for f in path.rglob(f"*{s}"))
    if not files:
        expected = f"{path} must be a file that ends in {' or '.join(suffixes)}, or have some"
        raise FileNotFoundError(expected)
    return files


def _part_of(file):
    """The word that the name of a file or its folder begins with, as in train-0-of-2.parquet."""
    firsts = (re.split(r"[^a-z]", name.lower())[0] for name in (file.name, file.parent.name))
    return next(filter(WORDS.get, firsts), "train")
