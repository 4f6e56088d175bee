"""Bounding boxes: reads them from a file and checks that they lie inside their images."""

import csv
import dataclasses
import os
import pathlib

import numpy as np

from tfdml.checks import Bare, check
from tfdml.files import identity
from tfdml.images.image_headers import excess_pixels, open_image
from tfdml.quiet import progress

EDGES = ("x1", "y1", "x2", "y2")


def read_boxes(path):
    """{path, as written: (x1, y1, x2, y2)} of a CSV file with the first line `path,x1,y1,x2,y2`.

    Paths are relative to the folder of the dataset. The numbers are whole pixels of the file as
    stored, whatever its EXIF orientation: left and upper edge, from 0, then right and lower edge,
    exclusive. An error names the file and the line.
    """
    columns, boxes = ["path", *EDGES], {}
    header, *lines = [*csv_lines(path)] or [(1, columns)]
    if header[1] != columns:
        raise ValueError(f"{path} must begin with the line {','.join(columns)}")
    for number, (image, *cells) in lines:
        where = f"{path}, line {number}"
        if image in boxes:
            raise ValueError(f"{where}: {image} has a box already")
        boxes[image] = box_of(cells, where)
    check(boxes, f"{path} must name boxes", boxes=0)
    return boxes


def box_of(cells, where):
    """The (x1, y1, x2, y2) of the cells of a line; a ValueError names `where` they stand."""
    edges = [int(cell) if cell.isdecimal() else -1 for cell in cells]
    if len(edges) != 4 or not (0 <= edges[0] < edges[2] and 0 <= edges[1] < edges[3]):
        expected = f"{where}: a box must be four integers x1,y1,x2,y2, 0 <= x1 < x2, 0 <= y1 < y2"
        raise ValueError(f"{expected}. Received: {','.join(cells)!r}")
    return tuple(edges)


def csv_lines(path):
    """Yields the number and the cells of each line of a CSV file that is not empty."""
    with pathlib.Path(path).open(newline="", encoding="utf-8-sig") as file:  # as of spreadsheets
        lines = csv.reader(file, strict=True)
        try:
            for cells in lines:
                if cells:
                    yield lines.line_num, [cell.strip() for cell in cells]
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"{path} must be a CSV file in UTF-8 ({error})") from error


def with_boxes(dataset, path, data_dir):
    """The dataset with the boxes of a file, one for every image; boxes of other images are ignored.

    `data_dir` is the folder that its paths are relative to, or a file in it.
    """
    folder = pathlib.Path(os.path.expanduser(data_dir))
    folder = folder.parent if folder.is_file() else folder
    boxes = {}
    for image, box in read_boxes(path).items():
        once = box == boxes.setdefault(identity(folder / os.path.expanduser(image)), box)
        check(once, f"{path} must have one box for an image", twice=Bare(image))
    splits = dataset.splits
    for name, split in splits.items():
        in_cache = "`boxes` cannot be applied to a cache: give them to python -m pipelines.cache"
        check(split.warped is None, f"{in_cache} when writing it", boxes=Bare(path))
        found = [boxes.get(identity(image)) for image in split.images]
        missing = [row for row, box in enumerate(found) if box is None]
        first = [os.path.relpath(split.images[row], folder) for row in missing[:1]]
        received = {"without": len(missing), "first": Bare(*first)}
        check(not missing, f"{path} must have a box for every image", **received)
        splits[name] = dataclasses.replace(split, boxes=found)
    for split in splits.values():
        cut_to_images(split.images, split.boxes, exact=True)
    return dataclasses.replace(dataset, **splits)


def cut_to_images(paths, boxes, exact=False):
    """(n, 4) boxes, rounded outward to whole pixels and clipped to their images, as integers.

    An error names the first image whose box lies wholly outside, or with `exact` in part.
    """
    boxes = np.asarray(boxes)
    cut = np.concatenate([np.floor(boxes[:, :2]), np.ceil(boxes[:, 2:])], axis=1)
    for row, path in enumerate(progress("Checking boxes", paths)):
        with open(path, "rb") as file:
            image = open_image(file)
        if excess := excess_pixels(image):
            advice = "reduce it, or leave out all such images by --skip_invalid"
            raise ValueError(f"{path} cannot be read ({excess}): {advice}")
        width, height = image.size
        left, top, right, bottom = np.clip(cut[row], 0, [width, height, width, height], cut[row])
        inside = left < right and top < bottom and not (exact and (cut[row] != boxes[row]).any())
        received = {"box": boxes[row].tolist(), "width": width, "height": height}
        check(inside, f"{path}: a box must be inside its image", **received)
    return cut.astype(np.int64)
