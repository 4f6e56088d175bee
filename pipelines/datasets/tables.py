"""Images inside tables, written as files once: Parquet, Hugging Face; and shards of WebDataset."""

import importlib
import json
import pathlib
from typing import Any

from pipelines.datasets import given_path
from pipelines.datasets.image_list import WORDS, ImageList, checked_dataset, numbered, parts_of
from tfdml.checks import Bare, check
from tfdml.files import kept, read_text, unpacked, write_text
from tfdml.images.image_files import is_image
from tfdml.images.image_headers import readable
from tfdml.quiet import progress


def load(data_dir=None, skip_invalid=False, training=True, *, kind, name=None):
    """Images of tables. Splits named by `WORDS` are kept if their classes differ, else halved.

    Args:
        data_dir, skip_invalid, training: As for `pipelines.load`.
        kind: `"parquet"`: files with a column of encoded images and the column `label`, perhaps
            `split`, else the names of the files begin with it. `"webdataset"`: tar files with
            KEY.jpg and KEY.cls, or KEY.json with a `label`. `"hf"`: a data set of Hugging Face.
        name: Of that data set, or the folder that its `save_to_disk` wrote.
    """
    rows = {"parquet": _of_parquet, "webdataset": _of_shards, "hf": _of_hugging_face}[kind](
        name if kind == "hf" else given_path(kind, data_dir, "a file or a folder of files")
    )
    check(rows, "a table must have images", dataset=name or kind, data_dir=str(data_dir))
    paths, words, parts = zip(*rows, strict=True)
    labels, class_names = numbered([str(word) for word in words])
    images = ImageList(paths, labels, class_names, parts=parts_of(parts, labels))
    return checked_dataset(name or kind, images, skip_invalid, training)


def _of_parquet(path):
    import pyarrow.parquet as pq  # optional

    files = _files(path, ".parquet")

    def rows():
        for file in progress("Reading", files):
            for batch in pq.ParquetFile(file).iter_batches(64):
                for row in batch.to_pylist():
                    found = [key for key, value in row.items() if _bytes_of(value)]
                    expectation = f"{file} must have a column of encoded images, and `label`"
                    check(found and "label" in row, expectation, columns=[*row])
                    yield _bytes_of(row[found[0]]), row["label"], row.get("split", _word(file))

    return _written(path.name, files, rows)


def _of_hugging_face(name):
    datasets: Any = importlib.import_module("datasets")  # optional
    stored = pathlib.Path(name).is_dir()
    found = (datasets.load_from_disk if stored else datasets.load_dataset)(name)
    parts = found if isinstance(found, dict) else {"train": found}
    files = [file["filename"] for part in parts.values() for file in part.cache_files]

    def rows():
        for word, part in parts.items():
            keys = {type(kind).__name__: key for key, kind in reversed(part.features.items())}
            expectation = f"{name!r} must have a column of images and one of class labels"
            check({"Image", "ClassLabel"} <= keys.keys(), expectation, features=Bare(keys))
            image, label = keys["Image"], keys["ClassLabel"]
            undecoded = part.cast_column(image, datasets.Image(decode=False))
            for row in progress(f"Reading {word}", undecoded):
                content = row[image]["bytes"] or pathlib.Path(row[image]["path"]).read_bytes()
                yield content, part.features[label].int2str(row[label]), word

    return _written(pathlib.Path(name).name, files, rows)


def _of_shards(path):
    rows = []
    for shard in _files(path, ".tar") if any(path.glob("*.tar")) else [path]:
        for file in sorted(filter(is_image, unpacked(shard).rglob("*"))):
            beside = file.with_name(file.name.partition(".")[0])
            label, about = beside.with_suffix(".cls"), beside.with_suffix(".json")
            if label.exists():
                word = read_text(label).strip()
            else:
                word = json.loads(read_text(about)).get("label") if about.exists() else None
            check(word is not None, f"{file} must have a label in {label.name} or {about.name}")
            rows.append((str(file), word, _word(shard)))
    return rows


def _files(path, suffix):
    files = sorted(path.rglob(f"*{suffix}")) if path.is_dir() else [path]
    if not files or not files[0].exists():
        raise FileNotFoundError(
            f"{path} must be a {suffix} file or a folder of such; there is none"
        )
    return files


def _word(file):
    """The part that the name of a file begins with, such as train-00000-of-00002.parquet."""
    name = file.name.lower()
    return next((word for word in sorted(WORDS, reverse=True) if name.startswith(word)), "train")


def _bytes_of(value):
    value = value.get("bytes") if isinstance(value, dict) else value
    return value if isinstance(value, bytes) else None


def _written(name, sources, rows):
    """(path, label, word) of rows with the contents of a file in place of the path."""

    def write(folder):
        listed = []
        for number, (content, label, word) in enumerate(rows()):
            path = folder / f"{number // 1000:05}" / f"{number:08}"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(readable(content))
            listed.append((str(path.relative_to(folder)), label, word))
        write_text(folder / "rows.json", json.dumps(listed))

    folder = kept(name, sources, write)
    listed = json.loads(read_text(folder / "rows.json"))
    return [(str(folder / path), label, word) for path, label, word in listed]
