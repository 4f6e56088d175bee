import io

import numpy as np
import PIL.Image
import pytest

from tfdml.client import images
from tfdml.client.images import ImageError


def test_arrays_of_uint8_are_sent_without_loss(rng):
    for shape in ((7, 5, 3), (7, 5, 1), (7, 5)):
        pixels = rng.integers(0, 256, shape).astype(np.uint8)
        name, content = images.read(pixels, "image 0")
        decoded = np.asarray(PIL.Image.open(io.BytesIO(content)))
        assert name == "image 0"
        np.testing.assert_array_equal(decoded, pixels.reshape(decoded.shape))


def test_files_and_bytes_are_sent_as_they_are(tmp_path):
    (tmp_path / "x.png").write_bytes(b"\x89PNG")
    for given in (tmp_path / "x.png", str(tmp_path / "x.png")):
        assert images.read(given, "image 0") == (str(tmp_path / "x.png"), b"\x89PNG")
    assert images.read(b"\x89PNG", "image 7") == ("image 7", b"\x89PNG")


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ImageError, match=r"x\.png cannot be read: No such file"):
        images.read(tmp_path / "x.png", "image 0")
    with pytest.raises(ImageError, match="cannot be read: Is a directory"):
        images.read(tmp_path, "image 0")


def test_floats_keep_their_numbers(rng):
    given = rng.uniform(0, 255, (4, 3))
    _, content = images.read(given, "image 0")
    assert (content.dtype, content.shape) == (np.float32, (4, 3, 1))
    np.testing.assert_array_equal(content[:, :, 0], given.astype("float32"))


@pytest.mark.parametrize(
    ("image", "error", "said"),
    [
        (3, TypeError, "image 0 must be one of paths, bytes"),
        (np.zeros((16, 12, 3), "int64"), TypeError, "of uint8, or of floats.*dtype='int64'"),
        (np.zeros((16, 12, 4), "uint8"), ValueError, r"with 1 or 3 channels.*\(16, 12, 4\)"),
        (np.zeros((1, 2, 3, 3), "uint8"), ValueError, r"image 0 must be .*\(1, 2, 3, 3\)"),
        (np.zeros((0, 12, 3), "uint8"), ValueError, r"image 0 must be .*\(0, 12, 3\)"),
        (np.full((16, 12, 3), 256.0), ValueError, r"in \[0, 255\]. Received: least=256"),
        (np.full((16, 12, 3), -1e-3), ValueError, r"in \[0, 255\]"),
        (np.full((16, 12, 3), np.nan), ValueError, r"in \[0, 255\]"),
    ],
)
def test_what_is_no_image_is_rejected(image, error, said):
    with pytest.raises(error, match=said):
        images.read(image, "image 0")


@pytest.mark.parametrize(
    ("given", "count"),
    [
        ("x.png", 1),
        (b"x", 1),
        (np.zeros((5, 4)), 1),
        (np.zeros((5, 4, 3)), 1),
        (np.zeros((6, 5, 4, 3)), 6),
        (["x.png", b"x"], 2),
        (iter(["x.png"]), None),
    ],
)
def test_states_how_many_images_were_given(given, count):
    listed, found = images.listed(given)
    assert found == count
    assert len(list(listed)) == (count or 1)


def test_what_holds_no_images_is_rejected():
    with pytest.raises(TypeError, match=r"`images` .*Received: images=3"):
        images.listed(3)
    with pytest.raises(ValueError, match=r"an array must be .*shape=\(1, 1, 2, 2, 3\)"):
        images.listed(np.zeros((1, 1, 2, 2, 3)))
