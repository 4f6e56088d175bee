"""Images of a search: files of its folder, formats and sizes, thumbnails, and rejected requests."""

import io
import os
import pathlib
import warnings

from PIL import Image, ImageOps, UnidentifiedImageError

from tfdml.images.image_files import is_image, is_utf8
from tfdml.images.image_headers import excess_pixels, in_eight_bits, open_image
from tfdml.scale.listed_images import files_below

MIME_TYPES = {kind: f"image/{kind.lower()}" for kind in ("BMP", "GIF", "JPEG", "PNG", "WEBP")}


class RejectedError(ValueError):
    """A request was rejected: a sentence and an HTTP status, such as 404."""

    def __init__(self, sentence, status=400):
        super().__init__(sentence)
        self.status = status


def image_files(folder):
    """The image files below a folder: {path: `file_stamp`}, sorted.

    Hidden files and folders and links to folders are ignored; links out of the folder, folders that
    cannot be listed and names that are not UTF-8 are ignored with a warning.
    """
    found, outside = {}, []
    for path in map(pathlib.Path, files_below(str(folder))):
        if path.name.startswith(".") or not is_image(path):
            continue
        try:
            if inside(folder, path).is_file():
                found[str(path)] = file_stamp(path.stat())
        except RejectedError:
            outside.append(path)
        except (OSError, RuntimeError):  # deleted meanwhile, or a broken link or a loop of them
            continue
    foreign = [path for path in found if not is_utf8(path)]
    if foreign:
        what = f"{len(foreign)} paths that are not valid UTF-8, such as {foreign[0]!a}"
        warnings.warn(f"ignored {what}", stacklevel=2)
    if outside:
        what = f"{len(outside)} links that lead out of {folder}, such as {outside[0]}"
        warnings.warn(f"ignored {what}", stacklevel=2)
    return {path: found[path] for path in sorted({*found}.difference(foreign))}


def inside(folder, path):
    """Resolves a path of a resolved folder; a `RejectedError` with 404 if it leads elsewhere."""
    real = pathlib.Path(folder, path).resolve(strict=True)
    if not real.is_relative_to(folder):
        raise RejectedError("The image is no longer in the folder of images", status=404)
    return real


def read(folder, name, stamp):
    """The bytes of a file; a `RejectedError` if it left the folder or has another stamp."""
    with open(inside(folder, name), "rb") as file:
        if file_stamp(os.fstat(file.fileno())) != stamp:
            raise RejectedError("The image has changed since it was indexed: refresh", status=410)
        return file.read()


def read_header(content):
    """(a key of `MIME_TYPES`, width, height) of the bytes of a file, without decoding pixels.

    A `RejectedError` with 415 if it is no picture of these formats; with 413 if it is too large.
    """
    try:
        picture = open_image(io.BytesIO(content))
    except UnidentifiedImageError:
        expected = "The picture must be a complete JPEG, PNG, WebP, GIF or BMP file"
        received = f"Received: {len(content):,} bytes of another type"
        raise RejectedError(f"{expected}. {received}", status=415) from None
    if excess := excess_pixels(picture):
        raise RejectedError(f"The picture must be smaller. Received: {excess}", status=413)
    width, height = picture.size
    return str(picture.format), width, height


def thumbnail(content, side=320):
    """A copy of at most this side as WebP, upright; errors of `read_header`, or if it is broken."""
    read_header(content)
    try:
        picture = open_image(io.BytesIO(content))
        picture.draft("RGB", (side, side))  # decodes only as many pixels of a JPEG as needed
        if picture.format == "JPEG":
            picture = ImageOps.exif_transpose(picture)
        picture = in_eight_bits(picture)
        picture = picture.convert("RGBA" if picture.has_transparency_data else "RGB")
        picture.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=2)
        file = io.BytesIO()
        picture.save(file, "WEBP", quality=80)
    except Exception as error:  # broken files raise many types
        raise RejectedError(f"The picture cannot be drawn ({error})") from error
    return file.getvalue()


def file_stamp(status):
    """The size and the modification time of a file, as a text, to notice changes."""
    return f"{status.st_size} {status.st_mtime_ns}"
