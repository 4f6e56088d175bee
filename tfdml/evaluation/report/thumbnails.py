"""Thumbnails of all pictures of a report, combined into a few sheets."""

import io
from typing import NamedTuple

import numpy as np
from PIL import Image

from tfdml.evaluation.report.pictures import picture_at
from tfdml.progress import progress

_SIDES = range(160, 31, -8)  # side in pixels of a square with the area of a picture
_STEP = 16  # WebP codes blocks of 16 x 16 pixels: no block holds parts of two pictures
_SHEET_SIDE = 1600  # pixels, what a phone decodes at once
_TRIED = 128  # pictures from which the bytes of a size are estimated
_TRIED_SIDE = 2 * _SIDES[0]  # pixels; more would fill the memory with photographs
_FINE, _FAIR, _LEAST = (85, 70), 50, (40, 30, 20, 10)  # qualities of WebP


class Sheets(NamedTuple):
    """Pictures in cells of one size, row by row, equally many on each sheet except the last."""

    width: int  # of a cell, in pixels
    height: int
    columns: int  # of a sheet
    rows: int
    images: list  # WebP files as bytes


def thumbnails(picture_of, count, most_bytes, *, seed=0):
    """Scales all pictures to the largest size within a number of bytes.

    Each picture is uncropped, centred in its cell on a transparent background; the cells have the
    median aspect ratio. The size is the largest at which a few random pictures stay within their
    share of the bytes at fair quality; the quality is lowered if all pictures together do not. Only
    pictures of about 32 x 32 pixels at the lowest quality may exceed the limit.

    Args:
        picture_of: As for `picture_at`.
        count: Number of pictures.
        most_bytes: Largest number of bytes of all sheets.
        seed: Seed of the few random pictures.

    Raises:
        TypeError: If a picture is not uint8.
        ValueError: If it has another shape.
    """
    few = np.random.default_rng(seed).permutation(count)[:_TRIED].tolist()
    tried, sizes = [], []
    for row in few:
        picture = picture_at(picture_of, row)
        sizes.append(picture.size)
        picture.thumbnail((_TRIED_SIDE, _TRIED_SIDE), reducing_gap=2)
        tried.append(picture)
    aspect = float(np.median([width / height for width, height in sizes]))
    most = max(map(max, sizes))
    shapes = dict.fromkeys(_shape(side, aspect) for side in _SIDES)
    shapes = [shape for shape in shapes if max(shape) < most + _STEP] or list(shapes)[-1:]
    tries = [*((shapes[0], quality) for quality in _FINE), *((shape, _FAIR) for shape in shapes)]
    for shape, quality in tries:
        cells = [_cell(picture, shape) for picture in tried]
        size = sum(map(len, _encode(cells, shape, quality)))
        if size / len(cells) * count <= most_bytes:
            break
    cells = np.empty((count, shape[1], shape[0], 4), np.uint8)
    for row in progress("Pictures", range(count)):
        cells[row] = _cell(picture_at(picture_of, row), shape)
    for lower in (quality, *_LEAST):
        images = _encode(cells, shape, lower)
        if sum(map(len, images)) <= most_bytes:
            break
    return Sheets(*shape, *_grid(shape), images)


def _shape(side, aspect):
    """(width, height) of a cell of about this aspect ratio and the area side * side."""
    stretch = min(max(aspect, 0.5), 2) ** 0.5
    lengths = (side * stretch, side / stretch)
    return tuple(max(_STEP, round(length / _STEP) * _STEP) for length in lengths)


def _cell(picture, shape):
    """(height, width, 4) uint8: the picture, centred and scaled to fit."""
    # With a transparent border of one pixel, as browsers blend adjacent cells when scaling.
    scale = min((shape[0] - 2) / picture.width, (shape[1] - 2) / picture.height)
    size = [max(1, round(length * scale)) for length in picture.size]
    picture = picture.convert("RGBA").resize(size, Image.Resampling.LANCZOS, reducing_gap=2)
    cell = Image.new("RGBA", shape)
    cell.paste(picture, ((shape[0] - size[0]) // 2, (shape[1] - size[1]) // 2))
    return np.asarray(cell)


def _grid(shape):
    return tuple(max(1, _SHEET_SIDE // length) for length in shape)


def _encode(cells, shape, quality):
    """The WebP sheets of the cells."""
    columns, rows = _grid(shape)
    width, height = shape
    sheets = []
    for first in range(0, len(cells), columns * rows):
        some = cells[first : first + columns * rows]
        used = -(-len(some) // columns)
        sheet = np.zeros((used * columns, height, width, 4), np.uint8)
        sheet[: len(some)] = some
        sheet = sheet.reshape(used, columns, height, width, 4).swapaxes(1, 2)
        buffer = io.BytesIO()
        picture = Image.fromarray(sheet.reshape(used * height, columns * width, 4))
        picture.save(buffer, "WEBP", quality=quality, alpha_quality=50)
        sheets.append(buffer.getvalue())
    return sheets
