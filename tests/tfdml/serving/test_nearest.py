import os

import numpy as np
import pytest
import tensorflow as tf

from tfdml.serving import nearest
from tfdml.serving.nearest import Gallery, Nearest


def test_what_is_itself_is_nearest_far_from_the_origin():
    # The squares are 4e8, of which float32 knows steps of 32.
    rows = 10_000.0 + 0.125 * np.eye(4, dtype="float32")
    distances, found = Nearest(rows, top=4)(tf.constant(rows))
    np.testing.assert_array_equal(found[:, 0], range(4))
    np.testing.assert_array_equal(distances[:, 0], np.zeros(4))
    np.testing.assert_allclose(distances[:, 1:], np.full((4, 3), 0.125 * 2**0.5), rtol=1e-5)


def test_of_equal_distances_the_earlier_row_comes_first():
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], "float32")
    _, found = Nearest(rows, top=9)(tf.constant(rows[:1]))
    assert found.numpy().tolist() == [[0, 2, 1]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], np.zeros((0, 2))), "from 1 to 100,000 .*rows=0"),
        ((["a"], np.ones(3)), r"must be \(n, dim\). Received: shape=\(3,\)"),
        ((["a"], np.ones((2, 3))), "`ids` .*Received: rows=2, ids=1"),
        ((["a", "a"], np.ones((2, 3))), r"Received: ids=\['a'\]"),
        ((["a", "b"], [[1.0, 2.0], [np.nan, 0.0]]), r"must be finite. Received: rows=\[1\]"),
        ((["a"], np.ones((1, 3)), []), "`classes` .*classes=0"),
        ((list(range(100_001)), np.ones((100_001, 1))), "rows=100001"),
    ],
)
def test_rejects_what_is_no_gallery(arguments, message):
    with pytest.raises(ValueError, match=message):
        Gallery(*arguments)


class Served:
    """Embeds a file as the numbers that stand in it."""

    def embed_files(self, paths):
        return np.array([[float(word) for word in path.read_text().split()] for path in paths])


@pytest.fixture
def folder(tmp_path):
    files = {"b/1.png": "0 2", "b/2.JPG": "4 4", "a/x.png": "1 1"}
    ignored = (".hidden/y.png", "a/.z.png", "c.png", "a/Thumbs.db", "a/x.xmp")
    files |= dict.fromkeys(ignored, "9 9")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_sub_folders_are_classes_and_files_in_them_images(folder):
    gallery = nearest.gallery_of_folder(Served(), folder)
    assert gallery.ids == ["a/x.png", "b/1.png", "b/2.JPG"]
    assert gallery.classes == ["a", "b", "b"]
    assert gallery.embeddings.tolist() == [[1, 1], [0, 2], [4, 4]]
    means = nearest.means_of_folder(Served(), folder)
    assert means.ids == ["a", "b"]
    assert means.embeddings.tolist() == [[1, 1], [2, 3]]


def test_rejects_names_that_are_not_utf8(folder):
    try:
        (folder / "a" / os.fsdecode(b"sch\xf6n.png")).write_text("1 1")
    except OSError:
        pytest.skip("this file system has names in UTF-8 only")
    with pytest.raises(ValueError, match=r"must be UTF-8. Received: path='.*sch.udcf6n\.png'"):
        nearest.gallery_of_folder(None, folder)


def test_rejects_a_folder_without_images_and_one_with_too_many(folder, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="must have sub-folders"):
        nearest.images_of(tmp_path / "a")
    monkeypatch.setattr(nearest, "MOST_ROWS", 2)
    with pytest.raises(ValueError, match=r"from 1 to 2 rows.*rows=3"):
        nearest.gallery_of_folder(None, folder)
