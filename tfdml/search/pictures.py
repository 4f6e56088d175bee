"""Encoded pictures: format and size from their headers, and thumbnails."""

import io
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps

from tfdml.search.refusals import RefusedError
from tfdml.serving.options import MAX_PIXELS

MIME_TYPES = {
    "BMP": "image/bmp",
    "GIF": "image/gif",
    "JPEG": "image/jpeg",
    "PNG": "image/png",
    "WEBP": "image/webp",
}
_ALSO_JPEG = "MPO"  # several images in one file, as some phones write; the first is read


class Header(NamedTuple):
    """Format and size of a picture, from its header."""

    format: str  # a key of `MIME_TYPES`
    width: int  # pixels
    height: int


def read_header(content):
    """Format and size of a picture by its content, without decoding pixels.

    Args:
        content: The bytes of the file.

    Returns:
        A `Header`.

    Raises:
        RefusedError: With 415, if it is not a picture of a supported format; with 413, if it has
            too many pixels.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> Image.new("RGB", (30, 20)).save(file, "PNG")
        >>> read_header(file.getvalue())
        Header(format='PNG', width=30, height=20)
    """
    try:
        picture = _opened(content)
    except Image.DecompressionBombError:
        raise _too_many("more than 178,000,000") from None
    except Exception:  # broken headers raise many types
        raise RefusedError(
            "The picture must be a complete JPEG, PNG, WebP, GIF or BMP file. "
            f"Received: {len(content):,} bytes of another type",
            status=415,
        ) from None
    width, height = picture.size
    if width * height > MAX_PIXELS:
        raise _too_many(f"{width:,} × {height:,}")
    kind = "JPEG" if picture.format == _ALSO_JPEG else picture.format
    return Header(kind, width, height)


def thumbnail(content, side=320):
    """A small copy of a picture as WebP; a JPEG is turned upright, as in the model.

    Args:
        content: Bytes that `read_header` accepts.
        side: The longer side, in pixels; smaller pictures keep their size.

    Raises:
        RefusedError: If the picture is cut off or otherwise broken.
    """
    try:
        picture = _opened(content)
        picture.draft("RGB", (side, side))  # decodes only as many pixels of a JPEG as needed
        if picture.format in ("JPEG", _ALSO_JPEG):
            picture = ImageOps.exif_transpose(picture)
        if picture.mode.startswith("I;16"):  # `convert` would clip it at 255
            picture = Image.fromarray((np.asarray(picture) // 256).astype(np.uint8))
        picture = picture.convert("RGBA" if picture.has_transparency_data else "RGB")
        picture.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=2)
        file = io.BytesIO()
        picture.save(file, "WEBP", quality=80)
    except Exception as error:  # broken files raise many types
        raise RefusedError(f"The picture cannot be drawn ({error})") from error
    return file.getvalue()


def _opened(content):
    return Image.open(io.BytesIO(content), formats=list(MIME_TYPES))


def _too_many(received):
    return RefusedError(
        f"The picture must have at most {MAX_PIXELS:,} pixels. Received: {received}", status=413
    )
