import os

import numpy as np
import pytest

from tfdml.serving import nearest as folders


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
    gallery = folders.gallery_of_folder(Served(), folder)
    assert gallery.ids == ["a/x.png", "b/1.png", "b/2.JPG"]
    assert gallery.classes == ["a", "b", "b"]
    assert gallery.embeddings.tolist() == [[1, 1], [0, 2], [4, 4]]
    means = folders.means_of_folder(Served(), folder)
    assert means.ids == ["a", "b"]
    assert means.embeddings.tolist() == [[1, 1], [2, 3]]


def test_rejects_names_that_are_not_utf8(folder):
    try:
        (folder / "a" / os.fsdecode(b"sch\xf6n.png")).write_text("1 1")
    except OSError:
        pytest.skip("this file system has names in UTF-8 only")
    with pytest.raises(ValueError, match=r"must be UTF-8. Received: path='.*sch.udcf6n\.png'"):
        folders.gallery_of_folder(None, folder)


def test_rejects_a_folder_without_images_and_one_with_too_many(folder, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="must have sub-folders"):
        folders.images_of(tmp_path / "a")
    monkeypatch.setattr(folders, "MOST_ROWS", 2)
    with pytest.raises(ValueError, match=r"from 1 to 2 rows.*rows=3"):
        folders.gallery_of_folder(None, folder)
