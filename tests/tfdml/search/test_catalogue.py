import dataclasses

import numpy as np
import pytest

from tfdml.search.catalogue import Catalogue, Entry, LeftOut, load
from tfdml.search.picture_files import Stamp
from tfdml.search.row_index import RowIndex

STAMP, OTHER = Stamp(10, 2**60 + 1), Stamp(10, 2)
ROWS = np.eye(3, dtype=np.float32)


def files(*names):
    return {name: (Entry(name, STAMP, "PNG", 4, 3), ROWS[i]) for i, name in enumerate(names)}


@pytest.fixture
def catalogue():
    return Catalogue(RowIndex(3)).with_more(files("a.png", "ü/b\udcff.png", "c.png"))


def test_ids_are_never_given_twice(catalogue):
    again = catalogue.without([0, 1, 2]).with_more(files("a.png"))
    assert list(again.entries) == [3]
    assert list(again.with_more(files("d.png")).entries) == [3, 4]


def test_a_change_leaves_the_catalogue_before_it_alone(catalogue):
    before = catalogue.with_more({"d.png": LeftOut(STAMP, "broken")})
    after = before.without([0], ["d.png"])
    assert (set(before.entries), set(after.entries)) == ({0, 1, 2}, {1, 2})
    assert (len(before.index), len(after.index)) == (3, 2)
    assert (list(before.left_out), after.left_out) == (["d.png"], {})


def test_states_what_is_new_gone_and_changed():
    left_out = {name: LeftOut(STAMP, "broken") for name in ("bad", "mended", "bad and gone")}
    catalogue = Catalogue(RowIndex(3)).with_more({**files("kept", "changed", "gone"), **left_out})
    present = dict.fromkeys(("kept", "bad"), STAMP)
    present |= dict.fromkeys(("changed", "mended", "new"), OTHER)
    gone, cleared, new = catalogue.changes(present)
    assert gone == [1, 2]
    assert sorted(cleared) == ["bad and gone", "mended"]
    assert new == dict.fromkeys(("changed", "mended", "new"), OTHER)
    assert not any(catalogue.without(gone, cleared).changes({"kept": STAMP, "bad": STAMP}))


@pytest.fixture
def path(tmp_path, catalogue):
    path = tmp_path / "deep" / "index.npz"
    catalogue.save(path, "made by this")
    return path


def test_comes_back_as_it_was(path, catalogue):
    catalogue = catalogue.with_more({"d.png": LeftOut(STAMP, "broken")}).without([0])
    catalogue.save(path, "made by this")
    again = load(path, "made by this")
    for name in ("entries", "next_id", "left_out"):
        assert getattr(again, name) == getattr(catalogue, name)
    assert again.entries[1].stamp.modified == 2**60 + 1
    np.testing.assert_array_equal(again.rows([1, 2]), ROWS[1:])
    assert [file.name for file in path.parent.iterdir()] == ["index.npz"]


def test_rejects_the_index_of_another_model(path):
    with pytest.raises(ValueError, match=r"by this model: .*--index"):
        load(path, "another")


@pytest.mark.parametrize("size", [0, 10, 100, 0.5, 0.9])
def test_rejects_half_a_file(size, path):
    whole = path.read_bytes()
    path.write_bytes(whole[: int(size * len(whole)) if isinstance(size, float) else size])
    with pytest.raises(ValueError, match=r"not the index of a search: .*--index"):
        load(path, "made by this")


def test_rejects_another_archive(path):
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


def test_rejects_rows_and_images_of_two_saves(path, catalogue):
    dataclasses.replace(catalogue, index=catalogue.index.changed(remove=[0])).save(path, "by this")
    with pytest.raises(ValueError, match="as many rows as images"):
        load(path, "by this")


def test_a_save_that_fails_leaves_the_one_before(path, catalogue, monkeypatch):
    before = path.read_bytes()

    def full(file, **_):
        file.write(b"half of it")
        raise OSError("no space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="no space"):
        catalogue.without([0]).save(path, "made by this")
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["index.npz"]


@pytest.mark.parametrize(
    "changed",
    [
        {"catalogue": text}
        for text in (b"", b"[]", b"{}", b'{"entries": {"x": []}, "left_out": {}, "next_id": 0}')
    ]
    + [{"rows": bytes(100)}],
)
def test_rejects_what_another_program_wrote(changed, path):
    with np.load(path) as archive:
        content = dict(archive)
    content |= {name: np.frombuffer(data, np.uint8) for name, data in changed.items()}
    np.savez(path, **content)
    with pytest.raises(ValueError, match="is not the index of a search"):
        load(path, "made by this")
