"""Files and their EXIF orientation, as TensorFlow reads them and as Pillow does."""

import io
import struct

import numpy as np
import pytest
import tensorflow as tf
from image_contents import NOISE, WHOLE, encode
from PIL import Image, ImageOps

from tfdml.images import decoding
from tfdml.images.decoding import decode, resize, upright

ROWS, COLUMNS = np.mgrid[0:9, 0:13]  # odd sides, so that rows are padded
PIXELS = np.stack([COLUMNS * 19, ROWS * 28, (COLUMNS * 37 + ROWS * 23) % 256], -1).astype("uint8")
COLOUR = Image.fromarray(PIXELS)
GREY = COLOUR.convert("L")
ALPHA = Image.fromarray((COLUMNS * 20).astype("uint8"))
RGBA = Image.merge("RGBA", (*COLOUR.split(), ALPHA))
PALETTE = COLOUR.quantize(50)
CMYK = Image.merge("CMYK", (*COLOUR.split(), ALPHA))


def ycck():
    """A JPEG said to be YCCK by the flag of the Adobe marker, which Pillow does not write."""
    contents = encode(CMYK, "JPEG", quality=95)
    flag = contents.index(b"Adobe") + 11
    assert contents[flag] == 0
    return contents[:flag] + b"\2" + contents[flag + 1 :]


def top_down(contents):
    """A BMP whose rows come from above."""
    start, height = struct.unpack_from("<i", contents, 10)[0], len(PIXELS)
    rows = [contents[i : i + 16] for i in range(start, len(contents), 16)]
    assert len(rows) == height
    head = contents[:22] + struct.pack("<i", -height) + contents[26:start]
    return head + b"".join(reversed(rows))


FILES = {
    "jpeg": encode(COLOUR, "JPEG"),
    "jpeg rgb": encode(COLOUR, "JPEG", keep_rgb=True),
    "jpeg grey": encode(GREY, "JPEG"),
    "jpeg cmyk": encode(COLOUR.convert("CMYK"), "JPEG"),
    "jpeg cmyk with black": encode(CMYK, "JPEG"),
    "jpeg ycck with black": ycck(),
    "png grey": encode(GREY, "PNG"),
    "png grey and alpha": encode(Image.merge("LA", (GREY, ALPHA)), "PNG"),
    "png rgba": encode(RGBA, "PNG"),
    "png palette": encode(PALETTE, "PNG"),
    "png palette and transparency": encode(PALETTE, "PNG", transparency=3),
    "gif": encode(PALETTE, "GIF"),
    "gif animated": encode(
        PALETTE, "GIF", save_all=True, append_images=[NOISE.resize((13, 9)).quantize(9)]
    ),
    "bmp": encode(COLOUR, "BMP"),
    "bmp grey": encode(GREY, "BMP"),
    "bmp rgba": encode(RGBA, "BMP"),
    "bmp palette": encode(PALETTE, "BMP"),
    "bmp palette from above": top_down(encode(PALETTE, "BMP")),
    "bmp of 1 bit": encode(COLOUR.convert("1"), "BMP"),
    "webp": encode(COLOUR, "WEBP"),
    "webp rgba": encode(RGBA, "WEBP"),
    "webp rgba lossless": encode(RGBA, "WEBP", lossless=True, exact=True),
}

compiled = tf.function(decode, autograph=False)


@pytest.mark.parametrize("name", FILES)
def test_gives_the_pixels_of_pillow(name):
    contents = tf.constant(FILES[name])
    expected = np.asarray(Image.open(io.BytesIO(FILES[name])).convert("RGB"))
    assert np.ptp(expected) > 100
    image = compiled(contents, 3)
    assert image.dtype == tf.uint8
    assert image.shape == expected.shape
    # The product of a colour and of black is rounded to the nearest or down.
    rounding = 1 if "black" in name else 0
    np.testing.assert_allclose(image, expected, atol=rounding, rtol=0)
    grey = np.asarray(Image.fromarray(expected).convert("L"))
    # TensorFlow and Pillow round the weights of the colours each in its own way.
    np.testing.assert_allclose(decode(contents, 1)[:, :, 0], grey, atol=1 + rounding)


def test_a_bmp_of_4_bits_has_the_colours_of_its_palette():
    # Two rows of 5 pixels from below; a row is 3 bytes and 1 more. Pillow does not write them.
    palette = b"".join(bytes([i, 10 * i, 255 - i, 0]) for i in range(16))
    head = struct.pack("<2sIII", b"BM", 0, 0, 14 + 40 + len(palette))
    head += struct.pack("<IiiHHIIiiII", 40, 5, 2, 1, 4, 0, 0, 0, 0, 0, 0)
    contents = head + palette + bytes.fromhex("12345000 6789a000")
    expected = np.array([[6, 7, 8, 9, 10], [1, 2, 3, 4, 5]])
    image = decode(tf.constant(contents), 3).numpy()
    np.testing.assert_array_equal(image, np.stack([255 - expected, 10 * expected, expected], -1))
    np.testing.assert_array_equal(image, Image.open(io.BytesIO(contents)).convert("RGB"))


def test_of_16_bits_the_upper_8_are_taken():
    values = (COLUMNS * 5000 + ROWS * 7).astype("uint16")
    contents = encode(Image.fromarray(values), "PNG")
    np.testing.assert_array_equal(decode(contents, 1)[:, :, 0], values >> 8)


def test_transparent_pixels_of_a_gif_are_black():
    index = np.asarray(PALETTE)[4, 6]
    transparent = np.asarray(PALETTE) == index
    image = decode(encode(PALETTE, "GIF", transparency=int(index)), 3).numpy()
    assert not image[transparent].any()
    expected = np.asarray(PALETTE.convert("RGB"))
    np.testing.assert_array_equal(image[~transparent], expected[~transparent])


@pytest.mark.parametrize("name", WHOLE)
def test_rejects_what_is_cut_off(name):
    contents = WHOLE[name]
    kept = [len(contents) - cut for cut in (2, 20, len(contents) // 2)]
    for length in (*kept, 64, 40, 20, 12, 3):
        # What TensorFlow says of a BMP may hold any bytes.
        with pytest.raises((tf.errors.InvalidArgumentError, UnicodeDecodeError)):
            compiled(tf.constant(contents[:length]), 3)


@pytest.mark.parametrize(
    "contents", [b"", b"\0", b"text", b"BM", b"RIFF", b"GIF89a", b"\xff\xd8\xff"]
)
def test_rejects_what_is_no_image(contents):
    with pytest.raises(tf.errors.InvalidArgumentError):
        compiled(tf.constant(contents), 3)


@pytest.mark.parametrize(("at", "value"), [(30, 1), (14, 12), (28, 0), (10, 50), (18, 0)])
def test_rejects_a_bmp_that_it_would_misread(at, value):
    contents = bytearray(WHOLE["bmp palette"])
    contents[at : at + 2] = struct.pack("<H", value)
    with pytest.raises(tf.errors.InvalidArgumentError, match="a BMP of this kind cannot be read"):
        decode(tf.constant(bytes(contents)), 3)


@pytest.mark.parametrize("name", WHOLE)
def test_rejects_more_pixels_than_the_limit(name, monkeypatch):
    monkeypatch.setattr(decoding, "MAX_PIXELS", 40 * 30)
    assert decode(tf.constant(WHOLE[name]), 3).shape == (40, 30, 3)
    monkeypatch.setattr(decoding, "MAX_PIXELS", 40 * 30 - 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="more than 1,199 pixels cannot be"):
        decode(tf.constant(WHOLE[name]), 3)


@pytest.mark.parametrize("size", [(40, 30), (9, 70)])
def test_resizes_bytes_as_it_resizes_floats(size):
    pixels = np.asarray(NOISE)
    found = resize(tf.constant(pixels), (*size, 3))
    assert found.dtype == tf.float32
    np.testing.assert_array_equal(found, resize(tf.constant(pixels, tf.float32), (*size, 3)))


def test_static_channels_are_known_in_a_graph():
    traced = compiled.get_concrete_function(tf.TensorSpec([], tf.string), 3)
    assert traced.structured_outputs.shape.as_list() == [None, None, 3]


JPEG = encode(NOISE, "JPEG", quality=95)
JFIF, TABLES = JPEG[2:20], JPEG[20:]


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


@pytest.mark.parametrize(
    ("segments", "order", "before"),
    [((), "<", 0), ((), ">", 0), ((JFIF,), "<", 0), ((JFIF,), ">", 100)],
    ids=["first", "big", "after JFIF", "directory behind other bytes"],
)
def test_turns_an_image_as_pillow_does(segments, order, before):
    for value in range(1, 9):
        content = tiff(value, order, before=bytes(before), offset=8 + before)
        contents = jpeg(*segments, exif(content))
        stored = Image.open(io.BytesIO(contents))
        expected = np.asarray(ImageOps.exif_transpose(stored))
        np.testing.assert_array_equal(compiled(tf.constant(contents), 3), expected)
        if value > 1:
            assert not np.array_equal(expected, np.asarray(stored))
        np.testing.assert_array_equal(decode(contents, 3, as_stored=True), np.asarray(stored))


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
    content = Image.Exif()
    content[0x0112] = 6
    np.testing.assert_array_equal(decode(encode(NOISE, "PNG", exif=content), 3), NOISE)
