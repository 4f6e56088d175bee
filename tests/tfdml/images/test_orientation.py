"""The EXIF orientation as TensorFlow reads it and as Pillow does."""

import io
import struct

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from tfdml.images.decoding import decode, upright

PIXELS = np.random.default_rng(0).integers(0, 256, (9, 13, 3), dtype=np.uint8)
_FILE = io.BytesIO()
Image.fromarray(PIXELS).save(_FILE, "JPEG", quality=95)
JFIF, TABLES = _FILE.getvalue()[2:20], _FILE.getvalue()[20:]

decoded = tf.function(decode, autograph=False)


def tiff(value, order="<", tag=0x0112, kind=3, count=1, before=b"", offset=8):
    """A TIFF file of a directory with two entries, of which the second is an orientation."""
    entries = struct.pack(order + "HHI4s", 0x010F, 2, 1, b"a\0\0\0")
    entries += struct.pack(order + "HHIHH", tag, kind, count, value, 0)
    head = {"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(order + "I", offset)
    return head + before + struct.pack(order + "H", 2) + entries + bytes(4)


def exif(content):
    return b"\xff\xe1" + struct.pack(">H", len(content) + 8) + b"Exif\0\0" + content


def jpeg(*segments):
    return b"\xff\xd8" + b"".join(segments) + TABLES


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("before", [(), (JFIF,)], ids=["first", "after JFIF"])
def test_turns_an_image_as_pillow_does(order, before):
    for value in range(1, 9):
        contents = jpeg(*before, exif(tiff(value, order)))
        stored = Image.open(io.BytesIO(contents))
        expected = np.asarray(ImageOps.exif_transpose(stored))
        np.testing.assert_array_equal(decoded(tf.constant(contents), 3), expected)
        if value > 1:
            assert not np.array_equal(expected, np.asarray(stored))
        np.testing.assert_array_equal(decode(contents, 3, as_stored=True), np.asarray(stored))


def test_finds_a_directory_behind_other_bytes():
    contents = jpeg(JFIF, exif(tiff(6, ">", before=bytes(100), offset=108)))
    expected = ImageOps.exif_transpose(Image.open(io.BytesIO(contents)))
    np.testing.assert_array_equal(decode(contents, 3), np.asarray(expected))


@pytest.mark.parametrize(
    "content",
    [
        tiff(0),
        tiff(9),
        tiff(6, tag=0x0113),
        tiff(6, kind=2),
        tiff(6, count=2),
        tiff(6, offset=9),
        tiff(6, offset=2**32 - 1),
        tiff(6)[:30],
        b"II+\0" + tiff(6)[4:],
        b"",
    ],
)
def test_what_is_malformed_turns_nothing(content):
    contents = jpeg(JFIF, exif(content))
    np.testing.assert_array_equal(decode(contents, 3), decode(jpeg(JFIF), 3))


def test_no_bytes_after_the_header_are_an_error():
    rng = np.random.default_rng(0)
    read = tf.function(lambda contents: upright(PIXELS, contents), autograph=False)
    beginnings = (b"\xff\xd8\xff", jpeg(exif(tiff(6)))[:20], jpeg(JFIF, exif(tiff(6, ">")))[:36])
    for beginning in beginnings:
        for _ in range(100):
            contents = beginning + rng.bytes(rng.integers(80))
            assert sorted(read(tf.constant(contents)).shape) == sorted(PIXELS.shape)
    for length in range(100):
        read(tf.constant(jpeg(JFIF, exif(tiff(6)))[:length]))


def test_other_formats_are_left_as_they_are():
    file = io.BytesIO()
    content = Image.Exif()
    content[0x0112] = 6
    Image.fromarray(PIXELS).save(file, "PNG", exif=content)
    np.testing.assert_array_equal(decode(file.getvalue(), 3), PIXELS)
