"""Thumbnails of all pictures of a report, combined into a few sheets."""

import io

import numpy as np
from PIL import Image, ImageOps

from tfdml.evaluation.report.pictures import picture_at, sheet_of
from tfdml.progress import progress

_SIDES = range(160, 31, -8)  # side in pixels of a square with the area of a picture
_STEP = 16  # WebP codes blocks of 16 x 16 pixels: no block holds parts of two pictures
_SHEET_SIDE = 1600  # pixels, what a phone decodes at once
_TRIED = 128  # pictures from which the bytes of a size are estimated
_SMALL_SIDE = 2 * _SIDES[0]  # pixels; more would fill the memory with photographs
_FINE, _FAIR, _LEAST = (85, 70), 50, (40, 30, 20, 10)  # qualities of WebP


def thumbnails(picture_of, count, most_bytes, *, seed=0):
    """Scales all pictures to the largest size within a number of bytes.

    Each picture is uncropped, centred in its cell on a transparent background; the cells have the
    median aspect ratio. The size is the largest at which a few random pictures stay within their
    share of the bytes at fair quality; the quality is lowered if all pictures together do not. Only
    pictures of about 32 x 32 pixels at the lowest quality may exceed the limit.

    Args:
        picture_of: As for `write_report`, with its errors.
        count: Number of pictures.
        most_bytes: Largest number of bytes of all sheets.
        seed: Seed of the few random pictures.

    Returns:
        {"width", "height": sides of a cell in pixels, "columns", "rows": cells of a sheet}, and the
        sheets, WebP files as bytes: the pictures row by row, the last sheet not full.
    """
    few = np.random.default_rng(seed).permutation(count)[:_TRIED].tolist()
    tried = [picture_at(picture_of, row, _SMALL_SIDE) for row in few]
    aspect = float(np.median([picture.width / picture.height for picture in tried]))
    most = max(max(picture.size) for picture in tried)
    shapes = dict.fromkeys(_shape(side, aspect) for side in _SIDES)
    shapes = [shape for shape in shapes if max(shape) < most + _STEP] or list(shapes)[-1:]
    tries = [*((shapes[0], quality) for quality in _FINE), *((shape, _FAIR) for shape in shapes)]
    for shape, quality in tries:
        cells = [_cell(picture, shape) for picture in tried]
        size = sum(map(len, _encode(cells, shape, quality)))
        if size / len(cells) * count <= most_bytes:
            break
    rows = progress("Pictures", range(count))
    cells = [_cell(picture_at(picture_of, row, _SMALL_SIDE), shape) for row in rows]
    for lower in (quality, *_LEAST):
        images = _encode(cells, shape, lower)
        if sum(map(len, images)) <= most_bytes:
            break
    names = ("width", "height", "columns", "rows")
    return dict(zip(names, (*shape, *_grid(shape)), strict=True)), images


def _shape(side, aspect):
    """(width, height) of a cell of about this aspect ratio and the area side * side."""
    stretch = min(max(aspect, 0.5), 2) ** 0.5
    lengths = (side * stretch, side / stretch)
    return tuple(max(_STEP, round(length / _STEP) * _STEP) for length in lengths)


def _cell(picture, shape):
    """The picture, centred and scaled to fit."""
    inside, clear = (shape[0] - 2, shape[1] - 2), (0, 0, 0, 0)
    picture = ImageOps.pad(picture.convert("RGBA"), inside, Image.Resampling.LANCZOS, clear)
    # With a transparent border of one pixel, as browsers blend adjacent cells when scaling.
    return ImageOps.expand(picture, 1, clear)


def _grid(shape):
    return tuple(max(1, _SHEET_SIDE // length) for length in shape)


def _encode(cells, shape, quality):
    """The WebP sheets of the cells."""
    columns, rows = _grid(shape)
    sheets = []
    for first in range(0, len(cells), columns * rows):
        some, buffer = cells[first : first + columns * rows], io.BytesIO()
        sheet = sheet_of(some, shape, columns, -(-len(some) // columns), "RGBA")
        sheet.save(buffer, "WEBP", quality=quality, alpha_quality=50)
        sheets.append(buffer.getvalue())
    return sheets
