"""Corrections of a dataset: images left out and labels changed, by CSV files."""

import csv
import dataclasses
import os
import pathlib

import numpy as np

from pipelines.datasets.image_list import PARTS, ImageList
from tfdml.checks import Bare, check
from tfdml.files import folder_of, identity, read_table, replacing
from tfdml.quiet import warn

COLUMNS = ("path", "finding", "score", "suggestion", "other")
EXCLUDE, RELABEL = "exclude", "relabel "  # suggestions of an audit, the latter before a class


def corrected(dataset, data_dir, exclude=None, relabel=None):
    """The dataset without some images, and with other labels of some.

    Both are CSV files with a column `path`, relative to `data_dir`, the folder of the dataset or a
    file in it, such as `evaluate.py audit` writes. With a column `suggestion`, `exclude` takes the
    lines where it is `exclude`, and `relabel` those where it is `relabel` and the name of a class;
    without, all lines, and of `relabel` the name in a column `label`. An image with a new label
    goes to the split that has its class. A training class that keeps one image goes too.

    Raises:
        FileNotFoundError, ValueError: If a file is not so, or names no image or class of these.
    """
    joined, places = dataset.both(), dataset.places
    in_files = joined.holds_paths and not joined.holds_records
    check(in_files, "corrections are for images in files", dataset=dataset.name)
    joined.check_one_label("images to correct")
    labels, kept = joined.labels.copy(), np.ones(len(joined.labels), bool)
    if relabel:
        ids = dict(zip(joined.names, joined.classes.tolist(), strict=True))
        lines = read_corrections(relabel, "label", RELABEL, joined.images, data_dir)
        for row, name, where, _ in lines:
            check(name in ids, f"{where}: a new label must be a class of the dataset", label=name)
            labels[row] = ids[name]
        homes = [np.isin(labels, split.classes) for split in dataset.splits.values()]
        own = np.choose(places, homes)
        places = np.where(own, places, np.argmax(homes, axis=0))
    if exclude:
        lines = read_corrections(exclude, None, EXCLUDE, joined.images, data_dir)
        kept[[row for row, *_ in lines]] = False
    changed = {"labels": labels, "super_labels": None, "parts": np.array(PARTS)[places]}
    images = ImageList(**{**vars(joined), **changed}).subset(kept)
    splits = images.without_single(skip_invalid=True).splits()
    for name, split in dataset.splits.items():
        leave = f"`exclude` and `relabel` leave no images of {name}"
        check(name in splits, leave, exclude=exclude)
        if lost := split.num_classes - splits[name].num_classes:
            warn(f"{lost:,} classes of {name} have no images any more")
        if split.super_labels is not None:
            known = dict(zip(split.labels.tolist(), split.super_labels.tolist(), strict=True))
            supers = [known[label] for label in splits[name].labels.tolist()]
            splits[name] = dataclasses.replace(splits[name], super_labels=supers)
    return dataclasses.replace(dataset, **splits)


def write_corrections(path, lines):
    """Writes a table of corrections, with the `COLUMNS`."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as unfinished, unfinished.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *lines])


def read_corrections(path, column, suggestion, images, data_dir):
    """A row, its cell or what its suggestion says, its place in the file, the row of `other`."""
    folder = folder_of(data_dir)
    rows = {}
    for row, image in enumerate(images):
        rows.setdefault(identity(image), []).append(row)  # several with a box each
    names, lines = read_table(path)
    wanted = "suggestion" if "suggestion" in names else column
    columns = [name for name in ("path", wanted) if name]
    expected = f"{path} must have {f'the columns path and {column}' if column else 'a column path'}"
    check(set(columns) <= set(names), expected, columns=names)
    found, unknown = [], []
    for where, cells in lines:
        check(len(cells) == len(names), f"{where} must have {len(names)} cells", cells=len(cells))
        line = dict(zip(names, cells, strict=True))
        text = line[wanted] if wanted else ""
        if wanted == "suggestion":
            if not text.startswith(suggestion):
                continue
            text = text.removeprefix(suggestion)
        some, others = (
            rows.get(identity(folder / os.path.expanduser(line.get(name, ""))), [])
            for name in ("path", "other")
        )
        found += [(row, text, where, next(iter(others), None)) for row in some]
        if not some:
            unknown.append(line["path"])
    if unknown:
        what = f"{len(unknown):,} images of {path} are not in the dataset"
        check(found, f"{what}, none is", first=Bare(unknown[0]))
        warn(f"{what}, such as {unknown[0]}")
    elif not found:
        warn(f"{path} changes nothing: no line is for `{suggestion.strip()}`")
    return found
