import numpy as np
import pytest

from tfdml.client.encoding import ImageError, Images, batches_of, listed, read_images


@pytest.mark.parametrize(
    ("image", "error", "said"),
    [
        (3, TypeError, "image 0 must be one of paths, bytes"),
        (np.zeros((16, 12, 3), "int64"), TypeError, "must be of uint8.*dtype='int64'"),
        (np.zeros((16, 12, 4), "uint8"), ValueError, r"with 1 or 3 channels.*\(16, 12, 4\)"),
        (np.zeros((1, 2, 3, 3), "uint8"), ValueError, r"image 0 must be .*\(1, 2, 3, 3\)"),
        (np.zeros((0, 12, 3), "uint8"), ValueError, r"image 0 must be .*\(0, 12, 3\)"),
    ],
)
def test_what_is_no_image_is_rejected(image, error, said):
    with pytest.raises(error, match=said):
        read_images([image], ["image 0"])


def test_one_image_or_an_iterable_of_them_is_listed():
    for given, count in ((b"x", 1), (np.zeros((5, 4)), 1), (np.zeros((6, 5, 4, 3)), 6)):
        images, found = listed(given)
        assert len(list(images)) == found == count
    with pytest.raises(TypeError, match=r"`images` .*Received: images=3"):
        listed(3)
    with pytest.raises(ValueError, match=r"an array must be .*shape=\(1, 1, 2, 2, 3\)"):
        listed(np.zeros((1, 1, 2, 2, 3)))


@pytest.mark.parametrize(
    ("contents", "batches"),
    [
        ([b"x"] * 7, [[0, 1, 2], [3, 4, 5], [6]]),
        ([], []),
        ([b"x", None, None, b"x"], [[0], [1, 2], [3]]),
    ],
    ids=["full but the last", "none", "errors apart"],
)
def test_batches(contents, batches):
    images = [
        ImageError(str(i), "gone") if content is None else Images((str(i),), (content,))
        for i, content in enumerate(contents)
    ]
    assert list(batches_of(images, 3)) == [[images[i] for i in batch] for batch in batches]
