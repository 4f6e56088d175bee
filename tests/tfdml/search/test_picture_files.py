import io
import os

import numpy as np
import pytest
from image_contents import WHOLE, encode
from PIL import Image

from tfdml.search.picture_files import (
    MIME_TYPES,
    RejectedError,
    file_stamp,
    image_files,
    inside,
    read,
    read_header,
    thumbnail,
)


def write(path, content=b"content"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.fixture
def images(tmp_path):
    path = tmp_path / "images"
    path.mkdir()
    return path.resolve()


def test_finds_images_in_all_folders(images):
    names = ["a/c.jpeg", "a/d.png/e.webp", "b.PNG"]
    for name in (*names, "a/notes.txt", ".hidden.png", ".git/x.png"):
        write(images / name, name.encode())
    (images / "link.png").symlink_to(images / "a")  # of a folder, as is d.png
    found = image_files(images)
    assert list(found) == [str(images / name) for name in names]
    status = (images / "b.PNG").stat()
    assert found[str(images / "b.PNG")] == file_stamp(status) == f"5 {status.st_mtime_ns}"


def test_passes_over_and_rejects_paths_that_lead_out(images, tmp_path):
    outside = write(tmp_path / "outside" / "secret.png", b"secret")
    sibling = write(images.with_name("images2") / "a.png")
    write(images / "own.png")
    (images / "link.png").symlink_to(outside)
    (images / "relative.png").symlink_to(os.path.relpath(outside, images))
    (images / "folder").symlink_to(outside.parent)
    (images / "nothing.png").symlink_to(images / "missing.png")
    (images / "inner.png").symlink_to(images / "own.png")
    (images / "loop").symlink_to(images)
    with pytest.warns(UserWarning, match="2 links .*/images"):
        assert list(image_files(images)) == [str(images / "inner.png"), str(images / "own.png")]
    names = ["../outside/secret.png", str(outside), "link.png", "folder/secret.png", str(sibling)]
    for name in names:
        with pytest.raises(RejectedError, match="no longer in the folder") as caught:
            inside(images, name)
        assert caught.value.status == 404
    assert inside(images, "own.png") == images / "own.png"
    with pytest.raises(FileNotFoundError):
        inside(images, "missing.png")


def test_passes_over_names_that_are_not_utf8(images):
    write(images / "own.png")
    write(images / os.fsdecode(b"\xff<b>.png"))
    with pytest.warns(UserWarning, match=r"1 paths that are not valid UTF-8, such as .*udcff<b>"):
        assert list(image_files(images)) == [str(images / "own.png")]


def test_reads_a_file_that_is_as_it_was(images):
    path = write(images / "a.png", b"first")
    [stamp] = image_files(images).values()
    modified = path.stat().st_mtime_ns
    assert read(images, "a.png", stamp) == b"first"
    os.utime(path, ns=(0, modified + 1))
    with pytest.raises(RejectedError, match="has changed since it was indexed") as caught:
        read(images, "a.png", stamp)
    assert caught.value.status == 410
    path.write_bytes(b"another")
    os.utime(path, ns=(0, modified))
    with pytest.raises(RejectedError, match="has changed"):
        read(images, "a.png", stamp)


def opened(content):
    return Image.open(io.BytesIO(content))


@pytest.mark.parametrize("kind", MIME_TYPES)
def test_recognises_the_type_by_the_content(kind, encoded):
    assert read_header(encoded((1, 2, 3), kind, (31, 17))) == (kind, 31, 17)


@pytest.mark.parametrize(
    "content",
    [b"", b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"GIF", bytes(1000), b"%PDF-1.7 ", "PPM"],
)
def test_rejects_what_is_no_picture(content, encoded):
    content = encoded((1, 2, 3), content) if content == "PPM" else content
    with pytest.raises(RejectedError, match="must be a complete JPEG") as caught:
        read_header(content)
    assert caught.value.status == 415


def test_a_photo_with_another_one_in_it_is_a_jpeg():
    red, green = (Image.new("RGB", (20, 10), colour) for colour in ("red", "green"))
    content = encode(red, "MPO", save_all=True, append_images=[green])
    assert opened(content).format == "MPO"
    assert read_header(content) == ("JPEG", 20, 10)


def test_draws_a_small_copy(encoded):
    small = opened(thumbnail(encoded((200, 40, 20), "JPEG", (1000, 500)), side=100))
    assert (small.format, small.size) == ("WEBP", (100, 50))
    np.testing.assert_allclose(np.asarray(small).mean(axis=(0, 1)), (200, 40, 20), atol=6)
    assert opened(thumbnail(encoded((1, 2, 3), size=(30, 20)), side=100)).size == (30, 20)


@pytest.mark.parametrize(("kind", "size"), [("JPEG", (20, 40)), ("PNG", (40, 20))])
def test_turns_pictures_as_a_model_does(kind, size):
    picture = Image.new("RGB", (40, 20))
    exif = picture.getexif()
    exif[0x0112] = 6  # turned by a quarter
    assert opened(thumbnail(encode(picture, kind, exif=exif))).size == size


def test_keeps_transparency_and_the_grey_of_16_bits():
    clear = encode(Image.new("RGBA", (8, 8), (255, 0, 0, 0)), "PNG")
    deep = encode(Image.fromarray(np.full((8, 8), 30_000, np.uint16)), "PNG")
    assert opened(thumbnail(clear)).convert("RGBA").getpixel((4, 4))[3] == 0
    grey = opened(thumbnail(deep)).convert("L").getpixel((4, 4))
    assert abs(grey - 30_000 / 256) < 6


def test_a_picture_that_is_cut_off_cannot_be_drawn():
    with pytest.raises(RejectedError, match="cannot be drawn"):
        thumbnail(WHOLE["png"][:500])
