import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from tfdml.search.pictures import MIME_TYPES, read_header, thumbnail
from tfdml.search.refusals import RefusedError
from tfdml.serving.options import MAX_PIXELS


def png_that_claims(width, height):
    """A whole PNG with this size in its header, and next to no pixels."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(bytes(99))), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*each) for each in chunks)


def opened(content):
    return Image.open(io.BytesIO(content))


@pytest.mark.parametrize("kind", MIME_TYPES)
def test_tells_the_type_by_the_content(kind, encoded):
    assert read_header(encoded((1, 2, 3), kind, (31, 17))) == (kind, 31, 17)


@pytest.mark.parametrize(
    "content",
    [b"", b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"GIF", bytes(1000), b"%PDF-1.7 " * 50],
)
def test_refuses_what_is_no_picture(content):
    with pytest.raises(RefusedError, match="must be a complete JPEG") as caught:
        read_header(content)
    assert caught.value.status == 415


def test_refuses_types_that_a_model_does_not_read(encoded):
    for kind in ("TIFF", "ICO", "PPM"):
        with pytest.raises(RefusedError) as caught:
            read_header(encoded((1, 2, 3), kind))
        assert caught.value.status == 415


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(("width", "height"), [(10_001, 5000), (12_000, 12_000), (99_999, 99_999)])
def test_refuses_too_many_pixels_by_the_header_alone(width, height):
    assert width * height > MAX_PIXELS
    with pytest.raises(RefusedError, match=r"50,000,000 .*Received: ") as caught:
        read_header(png_that_claims(width, height))
    assert caught.value.status == 413


def test_takes_as_many_pixels_as_an_exported_model():
    assert read_header(png_that_claims(10_000, 5000)) == ("PNG", 10_000, 5000)


def test_takes_a_bmp_of_indices():
    file, picture = io.BytesIO(), Image.new("P", (4, 4))
    picture.putpalette([255, 0, 0, 0, 255, 0])
    picture.save(file, "BMP")
    assert read_header(file.getvalue()) == ("BMP", 4, 4)
    assert opened(thumbnail(file.getvalue())).size == (4, 4)


def test_a_photo_with_another_one_in_it_is_a_jpeg():
    file = io.BytesIO()
    pictures = [Image.new("RGB", (20, 10), colour) for colour in ("red", "green")]
    pictures[0].save(file, "MPO", save_all=True, append_images=pictures[1:])
    assert opened(file.getvalue()).format == "MPO"
    assert read_header(file.getvalue()) == ("JPEG", 20, 10)


def test_draws_a_small_copy(encoded):
    small = opened(thumbnail(encoded((200, 40, 20), "JPEG", (1000, 500)), side=100))
    assert (small.format, small.size) == ("WEBP", (100, 50))
    np.testing.assert_allclose(np.asarray(small).mean(axis=(0, 1)), (200, 40, 20), atol=6)
    assert opened(thumbnail(encoded((1, 2, 3), size=(30, 20)), side=100)).size == (30, 20)


@pytest.mark.parametrize(("kind", "size"), [("JPEG", (20, 40)), ("PNG", (40, 20))])
def test_turns_pictures_as_a_model_does(kind, size):
    picture, file = Image.new("RGB", (40, 20)), io.BytesIO()
    exif = picture.getexif()
    exif[0x0112] = 6  # turned by a quarter
    picture.save(file, kind, exif=exif)
    assert opened(thumbnail(file.getvalue())).size == size


def test_keeps_transparency_and_the_grey_of_16_bits():
    clear, deep = io.BytesIO(), io.BytesIO()
    Image.new("RGBA", (8, 8), (255, 0, 0, 0)).save(clear, "PNG")
    Image.fromarray(np.full((8, 8), 30_000, np.uint16)).save(deep, "PNG")
    assert opened(thumbnail(clear.getvalue())).convert("RGBA").getpixel((4, 4))[3] == 0
    grey = opened(thumbnail(deep.getvalue())).convert("L").getpixel((4, 4))
    assert abs(grey - 30_000 / 256) < 6


def test_a_picture_that_is_cut_off_cannot_be_drawn(encoded, rng):
    file = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (50, 50, 3)).astype(np.uint8)).save(file, "PNG")
    with pytest.raises(RefusedError, match="cannot be drawn"):
        thumbnail(file.getvalue()[:500])
