import numpy as np
import pytest

from tfdml.search import row_index as module
from tfdml.search.row_index import RowIndex


def brute_force(ids, rows, row, count):
    distances = np.linalg.norm(rows.astype(np.float64) - row, axis=1)
    order = np.argsort(distances)[:count]
    return ids[order], distances[order]


@pytest.fixture
def rows(rng):
    return rng.normal(size=(300, 6)).astype(np.float32)


@pytest.fixture
def ids(rng):
    return rng.permutation(10_000)[:300]


def test_finds_the_nearest_rows_by_distance(rows, ids, rng):
    index = RowIndex(6).changed(add=(ids, rows))
    for row in rng.normal(size=(5, 6)).astype(np.float32):
        found, distances = index.nearest(row, 20)
        expected, their_distances = brute_force(ids, rows, row, 20)
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_allclose(distances, their_distances, rtol=1e-5)


def test_a_change_leaves_the_index_before_it_alone(rows, ids):
    before = RowIndex(6).changed(add=(ids[:200], rows[:200]))
    after = before.changed(remove=ids[:50], add=(ids[200:], rows[200:]))
    assert (len(before), len(after)) == (200, 250)
    for place in (0, 49):
        assert before.nearest(rows[place], 1)[0] == ids[place]
        assert after.nearest(rows[place], 1)[0] != ids[place]
    assert after.nearest(rows[250], 1)[0] == ids[250]
    np.testing.assert_array_equal(after.rows(ids[[60, 299]]), rows[[60, 299]])


def test_finds_as_many_as_there_are(rows, ids):
    assert len(RowIndex(6).nearest(rows[0], 5)[0]) == 0
    few = RowIndex(6).changed(add=(ids[:3], rows[:3]))
    assert sorted(few.nearest(rows[0], 5)[0]) == sorted(ids[:3])
    assert len(few.changed(remove=ids[:3]).nearest(rows[0], 5)[0]) == 0


def test_comes_back_from_its_bytes(rows, ids):
    index = RowIndex(6).changed(add=(ids, rows))
    again = RowIndex.from_bytes(index.to_bytes())
    np.testing.assert_array_equal(again.nearest(rows[0], 9)[0], index.nearest(rows[0], 9)[0])
    assert len(again.changed(remove=ids[:1], add=([77_777], rows[:1]))) == 300
    with pytest.raises(RuntimeError):
        RowIndex.from_bytes(np.zeros(100, np.uint8))


@pytest.fixture
def cells_from_200(monkeypatch):
    monkeypatch.setattr(module, "APPROXIMATE_FROM", 200)
    monkeypatch.setattr(module, "_PROBED_SHARE", 2)


@pytest.mark.usefixtures("cells_from_200")
@pytest.mark.filterwarnings("ignore")
def test_an_approximate_index_finds_most_of_the_nearest(rows, ids, rng):
    exact = RowIndex(6).changed(add=(ids, rows))
    index = RowIndex(6, approximate=True).changed(add=(ids, rows))
    assert (exact.cells, index.cells) == (0, 32)
    queries = rng.normal(size=(50, 6)).astype(np.float32)
    shared = [
        len(np.intersect1d(index.nearest(row, 10)[0], exact.nearest(row, 10)[0])) for row in queries
    ]
    assert 7 < np.mean(shared) < 10
    np.testing.assert_array_equal(index.rows(ids[:9]), rows[:9])


@pytest.mark.usefixtures("cells_from_200")
def test_an_approximate_index_grows_and_shrinks(rows, ids):
    index = RowIndex(6, approximate=True).changed(add=(ids[:150], rows[:150]))
    assert index.cells == 0
    index = index.changed(add=(ids[150:], rows[150:]))
    assert index.cells == 32
    index = index.changed(remove=ids[:40])
    assert (len(index), index.cells) == (260, 32)
    assert index.nearest(rows[100], 1)[0] == ids[100]
    assert ids[10] not in index.nearest(rows[10], 260)[0]
    assert index.changed(remove=ids[40:150]).cells == 0
    assert len(index.changed(remove=ids[40:])) == 0


@pytest.mark.usefixtures("cells_from_200")
def test_cells_are_made_anew_for_four_times_as_many_cells(rng):
    rows = rng.normal(size=(20_000, 3)).astype(np.float32)
    index = RowIndex(3, approximate=True).changed(add=(range(250), rows[:250]))
    assert index.cells == 32
    assert index.changed(add=(range(250, 1000), rows[250:1000])).cells == 32
    grown = index.changed(add=(range(250, 20_000), rows[250:]))
    assert grown.cells == 256
    np.testing.assert_array_equal(grown.rows([0, 19_999]), rows[[0, 19_999]])


@pytest.mark.usefixtures("cells_from_200")
def test_what_was_saved_comes_back_exact_or_approximate(rows, ids):
    index = RowIndex(6, approximate=True).changed(add=(ids, rows))
    again = RowIndex.from_bytes(index.to_bytes(), approximate=True)
    assert again.cells == 32
    assert again.changed(remove=ids[:1]).nearest(rows[1], 1)[0] == ids[1]
    exact = RowIndex.from_bytes(index.to_bytes())
    assert exact.cells == 0
    np.testing.assert_array_equal(
        exact.nearest(rows[0], 20)[0], brute_force(ids, rows, rows[0], 20)[0]
    )
