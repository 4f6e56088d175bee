"""The pictures of a report: read by their row numbers, and all of them as thumbnails on sheets."""

import io
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from PIL import Image, ImageOps

from tfdml.checks import check, check_type
from tfdml.quiet import progress

_SIDES = range(160, 31, -8)  # side in pixels of a square with the area of a picture
_STEP = 16  # WebP codes blocks of 16 x 16 pixels: no block holds parts of two pictures
_SHEET_SIDE = 1600  # pixels, what a phone decodes at once
_TRIED = 128  # pictures from which the bytes of a size are estimated
_MARGIN = 0.93  # of the bytes, as the estimate errs
_SMALL_SIDE = 2 * _SIDES[0]  # pixels; more would fill the memory with photographs


def thumbnails(picture_of, count, most_bytes, *, seed=0):
    """The WebP sheets of pictures, as large as the bytes allow, and {measure of them: number}."""
    few = np.random.default_rng(seed).permutation(count)[:_TRIED].tolist()
    tried = [picture_at(picture_of, row, _SMALL_SIDE) for row in few]
    aspect = float(np.median([picture.width / picture.height for picture in tried]))
    most = max(max(picture.size) for picture in tried)
    shapes = dict.fromkeys(_shape(side, aspect) for side in _SIDES)
    shapes = [shape for shape in shapes if max(shape) < most + _STEP] or list(shapes)[-1:]
    room = _MARGIN * most_bytes
    for shape, quality in [(shapes[0], 85), (shapes[0], 70), *((shape, 50) for shape in shapes)]:
        cells = [_cell(picture, shape) for picture in tried]
        if sum(map(len, _sheets(cells, shape, quality))) * count <= room * len(cells):
            break
    rows = progress("Pictures", range(count))
    cells = [_cell(picture_at(picture_of, row, _SMALL_SIDE), shape) for row in rows]
    for lower in (quality, 40, 30, 20, 10):
        images = _sheets(cells, shape, lower)
        if sum(map(len, images)) <= most_bytes:
            break
    (width, height), (columns, rows) = shape, _grid(shape)
    return {"width": width, "height": height, "columns": columns, "rows": rows}, images


def picture_at(picture_of, row, side):
    """The picture of a row as a Pillow image, of at most `side` pixels, checked."""
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


def _shape(side, aspect):
    """(width, height) of a cell of about this aspect ratio and the area side * side."""
    stretch = min(max(aspect, 0.5), 2) ** 0.5
    lengths = (side * stretch, side / stretch)
    return tuple(max(_STEP, round(length / _STEP) * _STEP) for length in lengths)


def _cell(picture, shape):
    """The picture, centred and scaled to fit."""
    # With a transparent border of one pixel, as browsers blend adjacent cells when scaling.
    (width, height), cell = shape, Image.new("RGBA", shape)
    inside = width - 2, height - 2
    picture = ImageOps.contain(picture.convert("RGB"), inside, Image.Resampling.HAMMING)
    cell.paste(picture, ((width - picture.width) // 2, (height - picture.height) // 2))
    return cell


def _grid(shape):
    return tuple(max(1, _SHEET_SIDE // length) for length in shape)


def _sheets(cells, shape, quality):
    """The WebP sheets of the cells."""
    columns, rows = _grid(shape)

    def encoded(first):
        some, buffer = cells[first : first + columns * rows], io.BytesIO()
        sheet = sheet_of(some, shape, columns, -(-len(some) // columns), "RGBA")
        sheet.save(buffer, "WEBP", quality=quality, alpha_quality=50)
        return buffer.getvalue()

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(encoded, range(0, len(cells), columns * rows)))
