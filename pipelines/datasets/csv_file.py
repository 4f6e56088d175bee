import os

import numpy as np

from pipelines.boxes import EDGES, box_of
from pipelines.datasets import given_path
from pipelines.datasets.image_list import (
    WORDS,
    ImageList,
    checked_dataset,
    first_half,
    numbered,
    parts_of,
)
from tfdml.checks import check
from tfdml.files import read_table
from tfdml.images.image_files import shown
from tfdml.quiet import warn

COLUMNS = {"path", "label", "split", "super_label", *EDGES}
OF_SEVERAL = {"path", "labels", "split"}  # where images may have several labels
SEPARATOR = ";"
CLASSES = ("label", "labels", "super_label")
FLAGS = ("is_query", "is_gallery")


def load(data_dir=None, skip_invalid=False, training=True, boxes=False):
    """Images that a CSV file lists, one a line; `data_dir` is the file, or its folder.

    docs/cookbook/data.md describes its columns. Whole numbers are sorted as numbers, names as text;
    nan is no label.
    """
    path = _find(data_dir)
    table = _read(path)
    expected = f"{path} must have the columns {','.join(EDGES)} for boxes"
    check("x1" in table or not boxes, expected, columns=[*table])
    if "label" in table:
        labels, class_names = numbered(table["label"])
    else:
        labels, class_names = numbered_sets(table["labels"])
    super_labels = numbered(table["super_label"])[0] if "super_label" in table else None
    paths = [str(path.parent / os.path.expanduser(image)) for image in table["path"]]
    edges = table["box"] if boxes else None
    parts = parts_of(table["split"]) if "split" in table else first_half(labels)
    mixed = set(FLAGS) <= table.keys() and {"test", "gallery"} <= set(table["split"])
    check(not mixed, f"{path}: images that are query and gallery must be all that are tested")
    images = ImageList(paths, labels, class_names, super_labels, edges, parts=parts)
    where = f". Paths are relative to {path.parent}, the folder of {path.name}"
    return checked_dataset("csv", images, skip_invalid, training, where=where, exact_boxes=True)


def numbered_sets(cells):
    """Several labels of each of n cells, (n, num_labels) of 0 and 1, and {column: name}."""
    words = [*map(_words, cells)]
    _, names = numbered([word for row in words for word in row])
    ordered = [names[i] for i in sorted(names)]
    check(len(ordered) > 1, "the column `labels` must name at least 2 labels", labels=ordered)
    labels = np.array([[int(name in row) for name in ordered] for row in words], np.int64)
    return labels, dict(enumerate(ordered))


def tables_in(folder):
    """The CSV files of a folder, in order."""
    return sorted(inner for inner in shown(folder) if inner.suffix.lower() == ".csv")


def _find(data_dir):
    what = "a CSV file with the columns path and label, or its folder"
    path = given_path("csv", data_dir, what)
    if path.is_dir():
        files = tables_in(path)
        if len(files) == 1:
            return files[0]
        error = ValueError if files else FileNotFoundError
        expected = f"{path} must have one CSV file, with the columns path and label"
        found = ", ".join(file.name for file in files) or "none"
        raise error(f"{expected}; if it has several, give the file itself. Found: {found}")
    return path


def _read(path):
    """{column: cells}, with "box" where there are edges."""
    names, lines = read_table(path)
    _check_names(path, names)
    check(lines, f"{path} must list images", images=0)
    rows = [_row(where, names, cells) for where, cells in lines]
    return {name: [row[name] for row in rows] for name in rows[0]}


def _words(cell):
    """The labels in a cell."""
    return [word.strip() for word in cell.split(SEPARATOR) if word.strip()]


def _check_names(path, names):
    given = set(names)
    known = {"path", "label"} <= given and "labels" not in given
    known |= given >= OF_SEVERAL and not given & {"label", "super_label"}
    known &= len(given) == len(names) and len(given.intersection(EDGES)) in (0, 4)
    expected = (
        f"{path} must begin with a line that names its columns: path,label and, if wanted, "
        f"split, super_label and all of {','.join(EDGES)}; or path,labels,split, for several "
        f"labels separated by {SEPARATOR!r}"
    )
    check(known, expected, line=",".join(names))
    if others := sorted(given.difference(COLUMNS, OF_SEVERAL, FLAGS)):
        warn(f"ignored the columns {', '.join(map(repr, others))} of {path}")


def _row(where, names, cells):
    """{column: cell} of a line."""
    row = dict(zip(names, cells, strict=False))
    whole = len(cells) == len(names) and all(row[name] for name in COLUMNS.intersection(names))
    check(whole, f"{where} must have {','.join(names)}", line=",".join(cells))
    words = [word.lower() for name in CLASSES for word in _words(row.get(name, ""))]
    check("nan" not in words, f"{where} must have a label", line=",".join(cells))
    part = row.get("split", "train")
    check(part in WORDS, f"{where}: `split` must be one of {', '.join(WORDS)}", split=part)
    if row.keys() >= set(FLAGS) and part != "train":
        query, gallery = (row[flag].lower() in ("1", "true") for flag in FLAGS)
        check(query or gallery, f"{where} must be a query or in the gallery", line=",".join(cells))
        row["split"] = "test" if query and gallery else "query" if query else "gallery"
    if "x1" in row:
        row["box"] = box_of([row[edge] for edge in EDGES], where)
    return row
