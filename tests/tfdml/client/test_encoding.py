import io

import numpy as np
import PIL.Image
import pytest

from tfdml.client import encoding
from tfdml.client.encoding import ImageError, Images, batches_of, read_images


def contents_of(given):
    """What is sent of one image."""
    return read_images([given], ["image 0"]).contents[0]


def test_arrays_of_uint8_are_sent_without_loss(rng):
    for shape in ((7, 5, 3), (7, 5, 1), (7, 5)):
        pixels = rng.integers(0, 256, shape).astype(np.uint8)
        decoded = np.asarray(PIL.Image.open(io.BytesIO(contents_of(pixels))))
        np.testing.assert_array_equal(decoded, pixels.reshape(decoded.shape))


def test_files_and_bytes_are_sent_as_they_are(tmp_path):
    path, content = tmp_path / "x.png", b"\x89PNG"
    path.write_bytes(content)
    found = read_images([path, str(path), content], ["a", "b", "c"])
    assert found == ((str(path), str(path), "c"), (content,) * 3)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    for path, reason in ((tmp_path / "x.png", "No such file"), (tmp_path, "Is a directory")):
        error = read_images([b"x", path], ["a", "b"])
        assert isinstance(error, ImageError)
        assert str(error).startswith(f"{path} cannot be read: {reason}")


def test_floats_keep_their_numbers(rng):
    given = rng.uniform(0, 255, (4, 3))
    content = contents_of(given)
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
        contents_of(image)


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
    listed, found = encoding.listed(given)
    assert found == count
    assert len(list(listed)) == (count or 1)


def test_what_holds_no_images_is_rejected():
    with pytest.raises(TypeError, match=r"`images` .*Received: images=3"):
        encoding.listed(3)
    with pytest.raises(ValueError, match=r"an array must be .*shape=\(1, 1, 2, 2, 3\)"):
        encoding.listed(np.zeros((1, 1, 2, 2, 3)))


PIXELS = np.zeros((2, 2, 3), "float32")


@pytest.mark.parametrize(
    ("contents", "batch_size", "batches"),
    [
        ([b"x"] * 7, 3, [[0, 1, 2], [3, 4, 5], [6]]),
        ([], 3, []),
        ([b"x", PIXELS, PIXELS, b"x"], 3, [[0], [1, 2], [3]]),
        ([b"x", None, None, b"x"], 3, [[0], [1], [2], [3]]),
        ([b"x" * size for size in (4, 4, 4, 30, 1)], 4, [[0, 1], [2], [3], [4]]),
    ],
    ids=["full but the last", "none", "of one kind", "errors alone", "of few bytes"],
)
def test_batches(contents, batch_size, batches, monkeypatch):
    monkeypatch.setattr(encoding, "_MOST_BYTES", 10 if len(contents) == 5 else 2**26)
    images = [
        ImageError(str(i), "gone") if content is None else Images((str(i),), (content,))
        for i, content in enumerate(contents)
    ]
    found = list(batches_of(images, batch_size))
    assert [[id(each) for each in batch] for batch in found] == [
        [id(images[i]) for i in batch] for batch in batches
    ]
