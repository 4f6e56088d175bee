"""The headers of image files, read without decoding pixels."""

from PIL import UnidentifiedImageError
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

from tfdml.images.image_files import MAX_PIXELS

KINDS = {  # {first bytes: (name, class)}
    b"\xff\xd8\xff": ("JPEG", JpegImageFile),
    b"\x89PNG": ("PNG", PngImageFile),
    b"GIF8": ("GIF", GifImageFile),
    b"BM": ("BMP", BmpImageFile),
    b"RIFF": ("WebP", WebPImageFile),
}


def open_image(file):
    """Opens a JPEG, PNG, GIF, BMP or WebP of any number of pixels, or an UnidentifiedImageError.

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
    raise unknown


def excess_pixels(image):
    """Says how far an image of `open_image` exceeds `MAX_PIXELS`; empty if it does not.

    A JPEG in CMYK, which TensorFlow decodes to four bytes a pixel, may have three quarters of them.
    """
    width, height = image.size
    most = MAX_PIXELS * 3 // 4 if image.mode == "CMYK" else MAX_PIXELS
    sides = f"{width:,} x {height:,} pixels"
    return f"{sides}, more than the limit of {most:,}" if width * height > most else ""
