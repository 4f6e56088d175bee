"""Pictures as encoded bytes: what they are, told by their first bytes, and small copies of them."""

import io
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps

from tfdml.serving.options import MAX_PIXELS
from tfdml.serving.search.refusals import RefusedError

MIME_TYPES = {
    "BMP": "image/bmp",
    "GIF": "image/gif",
    "JPEG": "image/jpeg",
    "PNG": "image/png",
    "WEBP": "image/webp",
}
_ALSO_JPEG = "MPO"  # several in one file, as some phones write them; the first is read


class Header(NamedTuple):
    """What a picture says of itself before it is decoded."""

    format: str  # a key of `MIME_TYPES`
    width: int  # pixels
    height: int


def read_header(content):
    """What a picture is, whatever its name; none of its pixels is decoded.

    Args:
        content: The bytes of the file.

    Returns:
        A `Header`.

    Raises:
        RefusedError: If it is no picture of a format that a model reads, with 415; or if it has too
            many pixels, with 413.

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
    except Exception:  # what broken headers raise has no common class
        raise RefusedError(
            "The picture must be a whole file of the type JPEG, PNG, WebP, GIF or BMP. "
            f"Received: {len(content):,} bytes of another type",
            status=415,
        ) from None
    width, height = picture.size
    if width * height > MAX_PIXELS:
        raise _too_many(f"{width:,} × {height:,}")
    kind = "JPEG" if picture.format == _ALSO_JPEG else picture.format
    return Header(kind, width, height)


def thumbnail(content, side=320):
    """A small copy of a picture as WebP; of a JPEG upright, as a model reads it.

    Args:
        content: Bytes that `read_header` accepts.
        side: The longer side, in pixels; a smaller picture stays as it is.

    Raises:
        RefusedError: If the picture is cut off or otherwise broken.
    """
    try:
        picture = _opened(content)
        picture.draft("RGB", (side, side))  # of a JPEG only as many pixels are decoded as needed
        if picture.format in ("JPEG", _ALSO_JPEG):
            picture = ImageOps.exif_transpose(picture)
        if picture.mode.startswith("I;16"):  # which `convert` would cut off at 255
            picture = Image.fromarray((np.asarray(picture) // 256).astype(np.uint8))
        picture = picture.convert("RGBA" if picture.has_transparency_data else "RGB")
        picture.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=2)
        file = io.BytesIO()
        picture.save(file, "WEBP", quality=80)
    except Exception as error:  # what broken files raise has no common class
        raise RefusedError(f"The picture cannot be drawn ({error})") from error
    return file.getvalue()


def _opened(content):
    return Image.open(io.BytesIO(content), formats=list(MIME_TYPES))


def _too_many(received):
    return RefusedError(
        f"The picture must have at most {MAX_PIXELS:,} pixels. Received: {received}", status=413
    )
