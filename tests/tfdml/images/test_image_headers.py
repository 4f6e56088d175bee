import io
import pathlib
import warnings

import numpy as np
import pytest
from image_contents import NOISE, WHOLE, claiming, encode
from PIL import Image, UnidentifiedImageError

from tfdml.images.image_files import MAX_PIXELS, class_folders, is_image
from tfdml.images.image_headers import KINDS, excess_pixels, open_image, read_image, readable


def excess_of(name, width, height):
    return excess_pixels(open_image(io.BytesIO(claiming(name, width, height))))


@pytest.mark.parametrize("name", WHOLE)
def test_opens_every_kind_as_pillow_does(name):
    image, expected = (opened(io.BytesIO(WHOLE[name])) for opened in (open_image, Image.open))
    assert (image.format, image.size) == (expected.format, NOISE.size)
    np.testing.assert_array_equal(image.convert("RGB"), expected.convert("RGB"))
    assert {kind for kind, _ in KINDS.values()} == {"JPEG", "PNG", "GIF", "BMP", "WebP"}


@pytest.mark.parametrize("name", ["jpeg", "png", "gif", "bmp"])
def test_says_by_how_much_a_header_exceeds_the_limit(name, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)  # of other modules
    assert 13_377**2 < MAX_PIXELS < 13_379 * 13_377
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert excess_of(name, 13_377, 13_377) == ""
        said = "13,379 x 13,377 pixels, more than the limit of 178,956,970"
        assert excess_of(name, 13_379, 13_377) == said


def test_a_jpeg_in_cmyk_has_four_bytes_a_pixel():
    assert excess_of("jpeg cmyk", 2**14, 8191) == ""
    said = "16,384 x 8,192 pixels, more than the limit of 134,217,727"
    assert excess_of("jpeg cmyk", 2**14, 8192) == said


@pytest.mark.parametrize("contents", [b"", b"text", encode(NOISE, "PPM"), WHOLE["png"][:20], b"BM"])
def test_rejects_other_kinds_and_damaged_headers(contents, tmp_path):
    (tmp_path / "a.png").write_bytes(contents)
    with (
        open(tmp_path / "a.png", "rb") as file,
        pytest.raises(UnidentifiedImageError, match=r"cannot identify image file '.*a\.png'"),
    ):
        open_image(file)


def test_sub_folders_are_classes_without_what_is_hidden(tmp_path):
    for name in ("b/2.png", "b/1.PNG", "b/notes.txt", "b/inner/3.png", "a/.x.png", ".git/y.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "c.png").touch()
    found = class_folders(tmp_path)
    assert list(found) == ["a", "b"]
    assert found["a"] == []
    assert [path.name for path in found["b"]] == ["1.PNG", "2.png", "inner", "notes.txt"]


def test_images_are_recognised_by_their_suffix():
    names = {"a.JPeG": True, "a.b.webp": True, "png": False, "a.tiff": True, "a.ppm": False}
    assert {name: is_image(pathlib.Path(name)) for name in names} == names


@pytest.mark.parametrize(("mode", "dtype"), [("RGB", "uint8"), ("I;16", "uint16")])
def test_what_tensorflow_does_not_decode_is_made_a_png(mode, dtype, tmp_path, rng):
    largest = np.iinfo(dtype).max
    pixels = rng.integers(0, largest, (5, 4, 3) if mode == "RGB" else (5, 4)).astype(dtype)
    picture, exif = Image.fromarray(pixels), Image.Exif()
    exif[0x0112] = 3  # upside down
    content = encode(picture, "TIFF", exif=exif)
    made = Image.open(io.BytesIO(readable(content)))
    assert made.format == "PNG"
    expected = (pixels >> (8 if dtype == "uint16" else 0)).reshape(5, 4, -1)[::-1, ::-1]
    assert (np.asarray(made) == expected).all()
    for name in ("png", "jpeg"):
        assert readable(WHOLE[name]) is WHOLE[name]
    assert readable(b"text") == b"text"
    (tmp_path / "a.TIF").write_bytes(content)
    (tmp_path / "a.heic").write_bytes(b"text")
    assert read_image(str(tmp_path / "a.TIF")) == readable(content)
    with pytest.raises(OSError, match=r"a\.heic is of a kind .* pip install pillow-heif"):
        read_image(tmp_path / "a.heic")
