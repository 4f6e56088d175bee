import numpy as np
import pytest

from tfdml.search.catalogue import Catalogue, Entry, LeftOut, load, save
from tfdml.search.images import Stamp
from tfdml.search.index import Index

STAMP = Stamp(10, 2**60 + 1)
ENTRIES = [Entry(name, STAMP, "PNG", 4, 3) for name in ("a.png", "ü/b\udcff.png")]


def test_ids_are_never_given_twice():
    catalogue, ids = Catalogue().with_more(ENTRIES, {})
    assert ids == [0, 1]
    catalogue, ids = catalogue.without([0, 1]).with_more(ENTRIES[:1], {})
    assert ids == [2]
    assert catalogue.entries == {2: ENTRIES[0]}
    assert catalogue.with_more(ENTRIES[1:], {})[1] == [3]


def test_a_change_leaves_the_catalogue_before_it_alone():
    left_out = {"c.png": LeftOut(STAMP, "broken")}
    before, _ = Catalogue().with_more(ENTRIES, left_out)
    after = before.without([0], ["c.png"])
    assert (set(before.entries), set(after.entries)) == ({0, 1}, {1})
    assert (before.left_out, after.left_out) == (left_out, {})


def test_comes_back_from_its_text():
    catalogue, _ = Catalogue().with_more(ENTRIES, {"c.png": LeftOut(STAMP, "broken")})
    again = Catalogue.from_json(catalogue.without([0]).to_json())
    assert again == catalogue.without([0])
    assert again.entries[1].stamp.modified == 2**60 + 1
    assert again.left_out["c.png"].cause == "broken"


@pytest.fixture
def saved(tmp_path):
    entries = [Entry(f"{i}.png", Stamp(i, i), "PNG", 1, 1) for i in range(3)]
    catalogue, ids = Catalogue().with_more(entries, {})
    index = Index(3).changed(add=(ids, np.eye(3, dtype=np.float32)))
    path = tmp_path / "deep" / "index.npz"
    save(path, index, catalogue, "made by this")
    return path, index, catalogue


def test_comes_back_as_it_was(saved):
    path, index, catalogue = saved
    again, their_catalogue = load(path, "made by this")
    assert their_catalogue == catalogue
    np.testing.assert_array_equal(again.rows([0, 1, 2]), index.rows([0, 1, 2]))
    assert [file.name for file in path.parent.iterdir()] == ["index.npz"]


def test_rejects_the_index_of_another_model(saved):
    with pytest.raises(ValueError, match=r"by this model: .*--index"):
        load(saved[0], "another")


@pytest.mark.parametrize("size", [0, 10, 100, 0.5, 0.9])
def test_rejects_half_a_file(size, saved):
    path, whole = saved[0], saved[0].read_bytes()
    path.write_bytes(whole[: int(size * len(whole)) if isinstance(size, float) else size])
    with pytest.raises(ValueError, match=r"not the index of a search: .*--index"):
        load(path, "made by this")


def test_rejects_another_archive(saved):
    path = saved[0]
    np.savez(path, other=np.arange(3))
    with pytest.raises(ValueError, match="is not the index of a search"):
        load(path, "made by this")
    with open(path, "wb") as file:
        np.save(file, np.arange(3))
    with pytest.raises(ValueError, match="is not the index of a search"):
        load(path, "made by this")
    path.unlink()
    with pytest.raises(FileNotFoundError):
        load(path, "made by this")


def test_rejects_rows_and_images_of_two_saves(saved):
    path, index, catalogue = saved
    save(path, index, catalogue.without([0]), "made by this")
    with pytest.raises(ValueError, match="as many rows as images"):
        load(path, "made by this")


def test_a_save_that_fails_leaves_the_one_before(saved, monkeypatch):
    path, index, catalogue = saved
    before = path.read_bytes()

    def full(file, **_):
        file.write(b"half of it")
        raise OSError("no space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="no space"):
        save(path, index.changed(remove=[0]), catalogue.without([0]), "made by this")
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["index.npz"]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"entries": {"x": []}, "left_out": {}, "next_id": 0}', '{"entries": 3}'],
)
def test_rejects_another_catalogue(text, saved, monkeypatch):
    path, index, catalogue = saved
    monkeypatch.setattr(Catalogue, "to_json", lambda self: text)
    save(path, index, catalogue, "made by this")
    with pytest.raises(ValueError, match="is not the index of a search"):
        load(path, "made by this")


def test_rejects_rows_of_another_program(saved, monkeypatch):
    path, index, catalogue = saved
    monkeypatch.setattr(Index, "to_bytes", lambda self: np.zeros(100, np.uint8))
    save(path, index, catalogue, "made by this")
    with pytest.raises(ValueError, match="is not the index of a search"):
        load(path, "made by this")
