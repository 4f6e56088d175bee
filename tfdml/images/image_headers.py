"""The headers of image files, read without decoding pixels; and PNG of what Pillow alone reads."""

import contextlib
import importlib
import io
import os
import pathlib

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

from tfdml.images.image_files import CONVERTED, MAX_PIXELS

KINDS = {  # {first bytes: (name, class)}
    b"\xff\xd8\xff": ("JPEG", JpegImageFile),
    b"\x89PNG": ("PNG", PngImageFile),
    b"GIF8": ("GIF", GifImageFile),
    b"BM": ("BMP", BmpImageFile),
    b"RIFF": ("WebP", WebPImageFile),
}


_PLUGGED = ("AVIF", "HEIF", "TIFF")  # as Pillow names them, if it or a plugin reads them


def open_image(file):
    """Opens a JPEG, PNG, GIF, BMP or WebP of any number of pixels, or an UnidentifiedImageError.

    Also a TIFF, AVIF or HEIC that Pillow and its plugins read, within its limit of pixels.
    `PIL.Image.open` warns of large images and rejects larger ones, by limits of its own.
    """
    beginning = file.read(max(map(len, KINDS)))
    file.seek(0)
    unknown = UnidentifiedImageError(f"cannot identify image file {getattr(file, 'name', file)!r}")
    for first_bytes, (_, opened) in KINDS.items():
        if beginning.startswith(first_bytes):
            try:
                return opened(file)
            except Exception as error:  # damaged headers raise many types
                raise unknown from error
    with contextlib.suppress(ImportError):
        importlib.import_module("pillow_heif").register_heif_opener()
    Image.init()
    try:
        return Image.open(file, formats=[kind for kind in _PLUGGED if kind in Image.OPEN])
    except Exception as error:
        raise unknown from error


def readable(content):
    """The bytes of an image file; as PNG where TensorFlow does not decode it, but `open_image`."""
    if not content or content.startswith(tuple(KINDS)):
        return content
    with contextlib.suppress(Exception):  # which the decoding will say
        picture, buffer = ImageOps.exif_transpose(open_image(io.BytesIO(content))), io.BytesIO()
        if picture.mode not in ("F", "I"):  # whose range is not known
            in_eight_bits(picture).convert("RGB").save(buffer, "PNG", compress_level=1)
            return buffer.getvalue()
    return content


def read_image(path):
    """The `readable` bytes of an image file; an OSError says which package reads it."""
    path = os.fsdecode(path)
    content = readable(pathlib.Path(path).read_bytes())
    if path.lower().endswith(CONVERTED) and not content.startswith(tuple(KINDS)):
        needed = "for HEIC: pip install pillow-heif"
        raise OSError(f"{path} is of a kind that Pillow does not read here ({needed})")
    return content


def in_eight_bits(picture):
    """A picture of Pillow in 8 bits a channel: `convert` would clip grey ones of 16 at 255."""
    if not picture.mode.startswith("I;16"):
        return picture
    return Image.fromarray((np.asarray(picture) // 256).astype(np.uint8))


def excess_pixels(image):
    """Says how far an image of `open_image` exceeds `MAX_PIXELS`; empty if it does not."""
    width, height = image.size
    # TensorFlow decodes a JPEG in CMYK to four bytes a pixel.
    most = MAX_PIXELS * 3 // 4 if image.mode == "CMYK" else MAX_PIXELS
    sides = f"{width:,} x {height:,} pixels"
    return f"{sides}, more than the limit of {most:,}" if width * height > most else ""
