import decimal
import os
import re

import numpy as np

from pipelines.boxes import box_of, csv_lines
from pipelines.datasets import given_path
from pipelines.datasets.listing import Listing, dataset_of, first_half, numbered
from tfdml.checks import Bare, check
from tfdml.files import identity
from tfdml.images.image_files import shown

EDGES = ("x1", "y1", "x2", "y2")
COLUMNS = ("path", "label", "labels", "split", "super_label", *EDGES)
SEPARATOR = ";"
CLASSES = ("label", "labels", "super_label")
# As programs print floats; 38e7411 is a name.
_NUMBER = re.compile(r"-?\d+(\.\d*)?(e[+-]\d+)?", re.IGNORECASE)
PARTS = {"train": "train", "test": "test", "query": "test", "gallery": "gallery"}


def load(data_dir=None, skip_invalid=False, training=True, boxes=False):
    """Images that a CSV file lists, one a line; `data_dir` is the file, or its folder.

    Its first line names the columns, in any order:

        path: Of the image, relative to the folder of the file.
        label: The class, a number or a name.
        labels: Instead of `label`: several classes of an image, separated by `;`, or none. The
            labels of the splits are then (n, num_labels) of 0 and 1, for losses such as `supcon`;
            test images may have labels of training images, and `split` is required. Such data
            trains by `EmbeddingModel.fit`; `train.py` and `evaluate.py` reject it.
        split: Optional: `train`, `test`, or `query` and `gallery` instead of `test`. Without it the
            first half of the classes in sorted order is for training (rounded down).
        super_label: Optional: the super-class, a number or a name.
        x1, y1, x2, y2: Optional: the box in whole pixels: left and upper edge, from 0, then right
            and lower edge, exclusive.

    Numbers are sorted as numbers, names as text. If all are numbers, 7.0 is 7, as pandas writes
    floats where a label is missing; nan is no label. An error names the line.
    """
    path = _find(data_dir)
    names, rows = _read(path)
    if boxes and "x1" not in names:
        raise ValueError(f"{path} must have the columns {','.join(EDGES)} for boxes: {names}")
    table = {name: [row[name] for row in rows] for name in names}
    labels, class_names = (
        numbered(table["label"]) if "label" in names else numbered_sets(table["labels"])
    )
    super_labels = numbered(table["super_label"])[0] if "super_label" in names else None
    images = [str(path.parent / image) for image in table["path"]]
    edges = [row["box"] for row in rows] if boxes else None
    parts = [PARTS[part] for part in table["split"]] if "split" in names else first_half(labels)
    listing = Listing(images, labels, class_names, super_labels, edges, parts=parts)
    where = f". Paths are relative to {path.parent}, the folder of {path.name}"
    return dataset_of("csv", listing, skip_invalid, training, where=where, exact_boxes=True)


def numbered_sets(cells):
    """Several labels of each of n cells, (n, num_labels) of 0 and 1, and {column: name}."""
    words = [*map(_words, cells)]
    _, names = numbered([word for row in words for word in row])
    ordered = [names[i] for i in sorted(names)]
    if len(ordered) < 2:
        raise ValueError(f"the column labels must name at least 2 labels. Received: {ordered}")
    column = {name: place for place, name in enumerate(ordered)}
    labels = np.zeros((len(cells), len(ordered)), np.int64)
    for row, image_words in enumerate(words):
        labels[row, [column[word] for word in image_words]] = 1
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
    if not path.exists():
        raise FileNotFoundError(f"`data_dir` must be a CSV file or its folder; there is no {path}")
    return path


def _read(path):
    """Returns the names of the columns, and every line as {name: cell}."""
    (_, names), *lines = [*csv_lines(path)] or [(1, [])]
    _check_names(path, names)
    rows = [_checked(f"{path}, line {number}", names, cells) for number, cells in lines]
    for name in set(CLASSES).intersection(names):
        if all(_NUMBER.fullmatch(word) for row in rows for word in _words(row[name])):
            for (number, _), row in zip(lines, rows, strict=True):
                what = f"{path}, line {number}: `{name}`"
                row[name] = SEPARATOR.join(_whole(what, word) for word in _words(row[name]))
    check(rows, f"{path} must list images", images=0)
    spellings = {}
    for row in rows:
        spellings.setdefault(identity(path.parent / row["path"]), []).append(row["path"])
    twice = [paths for paths in spellings.values() if len(paths) > 1]
    if twice:
        received = " and ".join(dict.fromkeys(twice[0]))
        raise ValueError(f"{path} must list an image once. Received twice: {received}")
    return names, rows


def _words(cell):
    """The labels in a cell."""
    return [word.strip() for word in cell.split(SEPARATOR) if word.strip()]


def _whole(what, cell):
    """The text of a whole number without its point; a ValueError if it has lost digits."""
    if cell.lstrip("-").isdecimal():
        return cell
    number = decimal.Decimal(cell)
    exact = abs(number) < 2**53 and int(number.as_tuple().exponent) <= 0 and number % 1 == 0
    check(exact, f"{what} must be a name or an exact whole number", received=Bare(cell))
    return str(int(number))


def _check_names(path, names):
    edges = len(set(names).intersection(EDGES))
    known = "path" in names and set(names) <= set(COLUMNS) and len(set(names)) == len(names)
    several = "labels" in names and "split" in names and "super_label" not in names
    known = known and ("label" in names) != ("labels" in names) and (several or "label" in names)
    wanted = (
        f"path,label and, if wanted, split, super_label and all of {','.join(EDGES)}; or "
        f"path,labels,split, for several labels separated by {SEPARATOR!r}"
    )
    if not known or edges not in (0, len(EDGES)):
        expected = f"{path} must begin with a line that names its columns: {wanted}"
        raise ValueError(f"{expected}. Received: {','.join(names)!r}")


def _checked(where, names, cells):
    row = dict(zip(names, cells, strict=False))
    if len(cells) != len(names) or not all(row[name] for name in names if name != "labels"):
        raise ValueError(f"{where} must have {','.join(names)}. Received: {','.join(cells)!r}")
    words = [word.lower() for name in CLASSES for word in _words(row.get(name, ""))]
    check("nan" not in words, f"{where} must have a label", line=",".join(cells))
    if "split" in row and row["split"] not in PARTS:
        expected = f"{where}: `split` must be one of {', '.join(PARTS)}"
        raise ValueError(f"{expected}. Received: {row['split']!r}")
    row["path"] = os.path.expanduser(row["path"])
    if "x1" in row:
        row["box"] = box_of([row[edge] for edge in EDGES], where)
    return row
