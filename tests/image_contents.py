"""Bytes of image files, whole or with a header that claims another size."""

import io
import struct
import zlib

import numpy as np
from PIL import Image

NOISE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 30, 3), dtype=np.uint8))
TRANSLUCENT = Image.merge("RGBA", (*NOISE.split(), NOISE.getchannel(0)))


def encode(image, kind, **options):
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


WHOLE = {
    "jpeg": encode(NOISE, "JPEG"),
    "jpeg progressive": encode(NOISE, "JPEG", progressive=True),
    "jpeg cmyk": encode(NOISE.convert("CMYK"), "JPEG"),
    "png": encode(NOISE, "PNG"),
    "gif": encode(NOISE.quantize(64), "GIF"),
    "bmp": encode(NOISE, "BMP"),
    "bmp palette": encode(NOISE.quantize(64), "BMP"),
    "webp": encode(NOISE, "WEBP"),
    "webp lossless": encode(NOISE, "WEBP", lossless=True),
    "webp rgba": encode(TRANSLUCENT, "WEBP"),
}
ANIMATED_WEBP = encode(NOISE, "WEBP", save_all=True, append_images=[NOISE.rotate(180)])


def claiming(name, width, height):
    """A file of `WHOLE` with these sides in its header."""
    contents = bytearray(WHOLE[name])
    jpeg = contents.find(struct.pack(">HH", NOISE.height, NOISE.width))
    layout, at, *values = {
        "jpeg": (">HH", jpeg, height, width),
        "jpeg cmyk": (">HH", jpeg, height, width),
        "png": (">II", 16, width, height),
        "gif": ("<HH", 6, width, height),
        "bmp": ("<II", 18, width, height % 2**32),
        "webp": ("<HH", 26, width, height),
        "webp lossless": ("<I", 21, (height - 1) << 14 | (width - 1)),
        "webp rgba": ("<HBHB", 24, width - 1, 0, height - 1, 0),
    }[name]
    struct.pack_into(layout, contents, at, *values)
    if name == "png":
        struct.pack_into(">I", contents, 29, zlib.crc32(contents[12:29]))
    return bytes(contents)
