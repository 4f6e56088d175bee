import io
import struct
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image, UnidentifiedImageError

from tfdml.image_files import MAX_PIXELS
from tfdml.image_headers import KINDS, excess_pixels, open_image


def encoded(kind, mode="RGB"):
    file = io.BytesIO()
    Image.new(mode, (30, 40)).save(file, kind)
    return file.getvalue()


def claiming(kind, width, height, mode="RGB"):
    """The bytes of a small image with these sides in its header."""
    contents = encoded(kind, mode)
    if kind == "JPEG":
        return contents.replace(struct.pack(">HH", 40, 30), struct.pack(">HH", height, width))
    layout, at = {"PNG": (">II", 16), "GIF": ("<HH", 6), "BMP": ("<ii", 18)}[kind]
    changed = bytearray(contents)
    struct.pack_into(layout, changed, at, width, height)
    if kind == "PNG":
        struct.pack_into(">I", changed, 29, zlib.crc32(changed[12:29]))
    return bytes(changed)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "WebP"])
def test_opens_every_kind_as_pillow_does(kind):
    image, expected = (opened(io.BytesIO(encoded(kind))) for opened in (open_image, Image.open))
    assert (image.format, image.size) == (expected.format, (30, 40))
    np.testing.assert_array_equal(image.convert("RGB"), expected.convert("RGB"))
    assert len(KINDS) == 5


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP"])
def test_says_by_how_much_a_header_exceeds_the_limit(kind, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)  # of other modules
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        images = [open_image(io.BytesIO(claiming(kind, side, 13_377))) for side in (13_377, 13_379)]
    assert 13_377**2 < MAX_PIXELS < 13_379 * 13_377
    assert excess_pixels(images[0]) == ""
    said = "13,379 x 13,377 pixels, more than the limit of 178,956,970"
    assert excess_pixels(images[1]) == said


def test_a_jpeg_in_cmyk_has_four_bytes_a_pixel():
    images = [open_image(io.BytesIO(claiming("JPEG", 2**14, n, "CMYK"))) for n in (8191, 8192)]
    assert [excess_pixels(image) for image in images] == [
        "",
        "16,384 x 8,192 pixels, more than the limit of 134,217,727",
    ]


@pytest.mark.parametrize("contents", [b"", b"text", encoded("TIFF"), encoded("PNG")[:20], b"BM"])
def test_rejects_other_kinds_and_damaged_headers(contents, tmp_path):
    (tmp_path / "a.png").write_bytes(contents)
    with (
        open(tmp_path / "a.png", "rb") as file,
        pytest.raises(UnidentifiedImageError, match=r"cannot identify image file '.*a\.png'"),
    ):
        open_image(file)
