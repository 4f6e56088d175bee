"""The pictures that are shown: read by their row numbers, and checked."""

import numpy as np
from PIL import Image

from tfdml.checks import check, check_type


def picture_at(picture_of, row, side):
    """The picture of a row as a Pillow image, of at most `side` pixels; else as `write_report`."""
    array = np.asarray(picture_of(row))
    is_uint8 = array.dtype == np.uint8
    check_type(is_uint8, f"`picture_of({row})` must be uint8", dtype=str(array.dtype), row=row)
    shaped = array.size > 0 and array.ndim > 1 and array.shape[2:] in ((), (1,), (3,))
    expectation = "must have shape (height, width) or (height, width, 1 or 3)"
    check(shaped, f"`picture_of({row})` {expectation}", shape=array.shape, row=row)
    picture = Image.fromarray(array[..., 0] if array.shape[2:] == (1,) else array)
    picture.thumbnail((side, side))
    return picture


def sheet_of(pictures, shape, columns, rows, mode):
    """Pictures, each (width, height) `shape`, in one image, row by row."""
    width, height = shape
    sheet = Image.new(mode, (columns * width, rows * height))
    for number, picture in enumerate(pictures):
        sheet.paste(picture, (number % columns * width, number // columns * height))
    return sheet


def check_image_names(image_names, rows):
    """Raises a ValueError unless there is one name per row, or none at all."""
    names = rows if image_names is None else len(image_names)
    check(names == rows, "`image_names` must have one name per row", image_names=names, rows=rows)
