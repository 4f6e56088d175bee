import decimal
import os
import re

import numpy as np

from pipelines.boxes import EDGES, box_of, csv_lines
from pipelines.datasets import given_path
from pipelines.datasets.image_list import ImageList, checked_dataset, first_half, numbered
from tfdml.checks import Bare, check
from tfdml.files import identity
from tfdml.images.image_files import shown

COLUMNS = {"path", "label", "labels", "split", "super_label", *EDGES}
SEPARATOR = ";"
CLASSES = ("label", "labels", "super_label")
# As programs print floats; 38e7411 is a name.
_NUMBER = re.compile(r"-?\d+(\.\d*)?(e[+-]\d+)?", re.IGNORECASE)
PARTS = {"train": "train", "test": "test", "query": "test", "gallery": "gallery"}


def load(data_dir=None, skip_invalid=False, training=True, boxes=False):
    """Images that a CSV file lists, one a line; `data_dir` is the file, or its folder.

    docs/cookbook/data.md describes its columns. Numbers are sorted as numbers, names as text. If
    all are numbers, 7.0 is 7, as pandas writes floats where a label is missing; nan is no label.
    """
    path = _find(data_dir)
    table = _read(path)
    if boxes and "x1" not in table:
        raise ValueError(f"{path} must have the columns {','.join(EDGES)} for boxes: {[*table]}")
    if "label" in table:
        labels, class_names = numbered(table["label"])
    else:
        labels, class_names = numbered_sets(table["labels"])
    super_labels = numbered(table["super_label"])[0] if "super_label" in table else None
    paths = [str(path.parent / image) for image in table["path"]]
    edges = table["box"] if boxes else None
    parts = [PARTS[part] for part in table["split"]] if "split" in table else first_half(labels)
    images = ImageList(paths, labels, class_names, super_labels, edges, parts=parts)
    where = f". Paths are relative to {path.parent}, the folder of {path.name}"
    return checked_dataset("csv", images, skip_invalid, training, where=where, exact_boxes=True)


def numbered_sets(cells):
    """Several labels of each of n cells, (n, num_labels) of 0 and 1, and {column: name}."""
    words = [*map(_words, cells)]
    _, names = numbered([word for row in words for word in row])
    ordered = [names[i] for i in sorted(names)]
    if len(ordered) < 2:
        raise ValueError(f"the column labels must name at least 2 labels. Received: {ordered}")
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
    if not path.exists():
        raise FileNotFoundError(f"`data_dir` must be a CSV file or its folder; there is no {path}")
    return path


def _read(path):
    """{column: cells}, with "box" where there are edges."""
    (_, names), *lines = [*csv_lines(path)] or [(1, [])]
    _check_names(path, names)
    check(lines, f"{path} must list images", images=0)
    rows = [_row(f"{path}, line {number}", names, cells) for number, cells in lines]
    table = {name: [row[name] for row in rows] for name in rows[0]}
    for name in set(CLASSES).intersection(names):
        if all(_NUMBER.fullmatch(word) for cell in table[name] for word in _words(cell)):
            for row, (number, _) in enumerate(lines):
                what = f"{path}, line {number}: `{name}`"
                words = [_whole(what, word) for word in _words(table[name][row])]
                table[name][row] = SEPARATOR.join(words)
    spellings = {}
    for image in table["path"]:
        spellings.setdefault(identity(path.parent / image), []).append(image)
    for twice in spellings.values():
        if len(twice) > 1:
            received = " and ".join(dict.fromkeys(twice))
            raise ValueError(f"{path} must list an image once. Received twice: {received}")
    return table


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
    given = set(names)
    several = "labels" in given
    known = {"path", "labels" if several else "label"} | ({"split"} if several else set())
    known = known <= given <= COLUMNS - ({"label", "super_label"} if several else {"labels"})
    if not known or len(given) != len(names) or len(given.intersection(EDGES)) not in (0, 4):
        expected = (
            f"{path} must begin with a line that names its columns: path,label and, if wanted, "
            f"split, super_label and all of {','.join(EDGES)}; or path,labels,split, for several "
            f"labels separated by {SEPARATOR!r}"
        )
        raise ValueError(f"{expected}. Received: {','.join(names)!r}")


def _row(where, names, cells):
    """{column: cell} of a line."""
    row = dict(zip(names, cells, strict=False))
    if len(cells) != len(names) or not all(row[name] for name in names if name != "labels"):
        raise ValueError(f"{where} must have {','.join(names)}. Received: {','.join(cells)!r}")
    words = [word.lower() for name in CLASSES for word in _words(row.get(name, ""))]
    check("nan" not in words, f"{where} must have a label", line=",".join(cells))
    if row.get("split", "train") not in PARTS:
        expected = f"{where}: `split` must be one of {', '.join(PARTS)}"
        raise ValueError(f"{expected}. Received: {row['split']!r}")
    row["path"] = os.path.expanduser(row["path"])
    if "x1" in row:
        row["box"] = box_of([row[edge] for edge in EDGES], where)
    return row
