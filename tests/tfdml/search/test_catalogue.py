import json

import faiss
import numpy as np
import pytest

from tfdml.search.catalogue import Entry, LeftOut, empty, load
from tfdml.search.picture_files import Stamp

STAMP = Stamp(10, 2**60 + 1)
ROWS = np.eye(3, dtype=np.float32)


def files(*names, rows=ROWS):
    return {name: (Entry(name, STAMP, "PNG", 4, 3), rows[i]) for i, name in enumerate(names)}


@pytest.fixture
def catalogue():
    return empty(3).with_more(files("a.png", "ü/b\udcff.png", "c.png"))


def test_finds_the_nearest_images_by_distance_at_most_as_many_as_there_are(rng):
    rows = rng.normal(size=(300, 6)).astype(np.float32)
    catalogue = empty(6).with_more(files(*map(str, range(300)), rows=rows))
    catalogue, _ = catalogue.matching(dict.fromkeys(map(str, range(100, 300)), STAMP))
    for row in rng.normal(size=(5, 6)).astype(np.float32):
        distances = np.linalg.norm(rows[100:].astype(np.float64) - row, axis=1)
        ids, found = catalogue.nearest(row, 20)
        np.testing.assert_array_equal(ids, 100 + np.argsort(distances)[:20])
        np.testing.assert_allclose(found, np.sort(distances)[:20], rtol=1e-5)
    np.testing.assert_array_equal(catalogue.rows([299, 100]), rows[[299, 100]])
    assert len(catalogue.nearest(rows[0], 999)[0]) == 200
    assert len(catalogue.matching({})[0].nearest(rows[0], 5)[0]) == 0


@pytest.fixture
def path(tmp_path, catalogue):
    path = tmp_path / "deep" / "index.npz"
    catalogue.save(path, "made by this")
    return path


def test_comes_back_as_it_was(path, catalogue):
    catalogue = catalogue.with_more({"d.png": LeftOut(STAMP, "broken")})
    catalogue.save(path, "made by this")
    again = load(path, "made by this")
    for name in ("entries", "next_id", "left_out"):
        assert getattr(again, name) == getattr(catalogue, name)
    assert again.entries[1].stamp.modified == 2**60 + 1
    np.testing.assert_array_equal(again.rows([1, 2]), ROWS[1:])
    assert list(again.matching({"c.png": STAMP})[0].with_more(files("e.png")).entries) == [2, 3]
    assert [file.name for file in path.parent.iterdir()] == ["index.npz"]


def test_rejects_the_index_of_another_model(path):
    with pytest.raises(ValueError, match=r"by this model: .*--index"):
        load(path, "another")
    with pytest.raises(FileNotFoundError):
        load(path.with_name("missing.npz"), "made by this")


def encoded(text):
    return np.frombuffer(text.encode(), np.uint8)


@pytest.mark.parametrize(
    "changed",
    [
        {"catalogue": encoded("")},
        {"catalogue": encoded('{"entries": {"x": []}, "left_out": {}, "next_id": 0}')},
        {"about": encoded(json.dumps({"format": 2, "fingerprint": "made by this"}))},
        {"rows": np.zeros(100, np.uint8)},
        {"rows": faiss.serialize_index(faiss.index_factory(3, "IVF1,Flat"))},  # of tfdml before
    ],
)
def test_rejects_what_another_program_wrote(changed, path):
    with np.load(path) as archive:
        content = dict(archive)
    np.savez(path, **{**content, **changed})
    with pytest.raises(ValueError, match=r"is not the index of a search: .*--index"):
        load(path, "made by this")
