"""The pictures that are shown: read by their row numbers, and checked."""

import numpy as np
from PIL import Image

from tfdml.checks import check, check_type


def picture_at(picture_of, row, name="picture_of"):
    """The picture of a row, as a Pillow image.

    Args:
        picture_of: Callable of a row number that returns (height, width) or
            (height, width, 1 or 3) uint8.
        row: Row number.
        name: Of the argument, in errors.

    Raises:
        TypeError: If the picture is not uint8.
        ValueError: If it has another shape.
    """
    array = np.asarray(picture_of(row))
    is_uint8 = array.dtype == np.uint8
    check_type(is_uint8, f"`{name}({row})` must be uint8", dtype=str(array.dtype), row=row)
    shaped = array.size > 0 and array.ndim > 1 and array.shape[2:] in ((), (1,), (3,))
    expectation = "must have shape (height, width) or (height, width, 1 or 3)"
    check(shaped, f"`{name}({row})` {expectation}", shape=array.shape, row=row)
    return Image.fromarray(array[..., 0] if array.shape[2:] == (1,) else array)


def check_image_names(image_names, rows):
    """Raises a ValueError unless there is one name per row, or none at all."""
    names = rows if image_names is None else len(image_names)
    check(names == rows, "`image_names` must have one name per row", image_names=names, rows=rows)
