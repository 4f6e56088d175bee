import numpy as np
import pytest

from tfdml.search import storage
from tfdml.search.catalogue import Catalogue, Entry
from tfdml.search.files import Stamp
from tfdml.search.index import Index


@pytest.fixture
def saved(tmp_path):
    entries = [Entry(f"{i}.png", Stamp(i, i), "PNG", 1, 1) for i in range(3)]
    catalogue, ids = Catalogue().with_more(entries, {})
    index = Index(3).changed(add=(ids, np.eye(3, dtype=np.float32)))
    path = tmp_path / "deep" / "index.npz"
    storage.save(path, index, catalogue, "made by this")
    return path, index, catalogue


def test_comes_back_as_it_was(saved):
    path, index, catalogue = saved
    again, their_catalogue = storage.load(path, "made by this")
    assert their_catalogue == catalogue
    np.testing.assert_array_equal(again.rows([0, 1, 2]), index.rows([0, 1, 2]))
    assert [file.name for file in path.parent.iterdir()] == ["index.npz"]


def test_refuses_the_index_of_another_model(saved):
    with pytest.raises(ValueError, match=r"by this model: .*--index"):
        storage.load(saved[0], "another")


@pytest.mark.parametrize("size", [0, 10, 100, 0.5, 0.9])
def test_refuses_half_a_file(size, saved):
    path, whole = saved[0], saved[0].read_bytes()
    path.write_bytes(whole[: int(size * len(whole)) if isinstance(size, float) else size])
    with pytest.raises(ValueError, match=r"not the index of a search: .*--index"):
        storage.load(path, "made by this")


def test_refuses_another_archive(saved):
    path = saved[0]
    np.savez(path, other=np.arange(3))
    with pytest.raises(ValueError, match="is not the index of a search"):
        storage.load(path, "made by this")
    with open(path, "wb") as file:
        np.save(file, np.arange(3))
    with pytest.raises(ValueError, match="is not the index of a search"):
        storage.load(path, "made by this")
    path.unlink()
    with pytest.raises(FileNotFoundError):
        storage.load(path, "made by this")


def test_refuses_rows_and_images_of_two_saves(saved):
    path, index, catalogue = saved
    storage.save(path, index, catalogue.without([0]), "made by this")
    with pytest.raises(ValueError, match="as many rows as images"):
        storage.load(path, "made by this")


def test_a_save_that_fails_leaves_the_one_before(saved, monkeypatch):
    path, index, catalogue = saved
    before = path.read_bytes()

    def full(file, **_):
        file.write(b"half of it")
        raise OSError("no space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="no space"):
        storage.save(path, index.changed(remove=[0]), catalogue.without([0]), "made by this")
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["index.npz"]
