"""Bounding boxes: reads them from a file and checks that they lie inside their images."""

import dataclasses
import os

import numpy as np

from tfdml.checks import Bare, check
from tfdml.files import folder_of, identity, read_table
from tfdml.images.image_headers import excess_pixels, open_image
from tfdml.quiet import progress

EDGES = ("x1", "y1", "x2", "y2")


def box_of(cells, where):
    """The (x1, y1, x2, y2) of the cells of a line; a ValueError names `where` they stand."""
    edges = [int(cell) if cell.isdecimal() else -1 for cell in cells]
    valid = len(edges) == 4 and 0 <= edges[0] < edges[2] and 0 <= edges[1] < edges[3]
    expected = f"{where}: a box must be four integers x1,y1,x2,y2, 0 <= x1 < x2, 0 <= y1 < y2"
    check(valid, expected, box=",".join(cells))
    return tuple(edges)


def with_boxes(dataset, path, data_dir):
    """The dataset with the boxes of a CSV file with the columns `path,x1,y1,x2,y2`.

    Every image must have one; those of others are ignored. Paths are relative to `data_dir`, the
    folder of the dataset or a file in it. The numbers are whole pixels of the file as stored,
    whatever its EXIF orientation: left and upper edge, from 0, then right and lower, exclusive.
    """
    folder = folder_of(data_dir)
    names, lines = read_table(path)
    expected = f"{path} must begin with the line path,{','.join(EDGES)}"
    check(names == ["path", *EDGES], expected, line=",".join(names))
    boxes = {}
    for where, (image, *cells) in lines:
        box = box_of(cells, where)
        once = box == boxes.setdefault(identity(folder / os.path.expanduser(image)), box)
        check(once, f"{path} must have one box for an image", twice=Bare(image))
    splits = dataset.splits
    for name, split in splits.items():
        in_cache = "`boxes` cannot be applied to a cache: give them to python -m pipelines.cache"
        check(split.warped is None, f"{in_cache} when writing it", boxes=Bare(path))
        found = [boxes.get(identity(image)) for image in split.images]
        missing = split.images[[box is None for box in found]]
        first = [os.path.relpath(image, folder) for image in missing[:1]]
        received = {"without": len(missing), "first": Bare(*first)}
        check(not len(missing), f"{path} must have a box for every image", **received)
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
