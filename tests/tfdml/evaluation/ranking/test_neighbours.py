import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tfdml.evaluation import nearest_neighbours
from tfdml.evaluation.ranking import neighbours, points
from tfdml.evaluation.ranking.neighbours import distances_to, nearest_rows


def by_sorting(x, k):
    x = np.asarray(x, np.float64)
    found = []
    for query in range(len(x)):
        others = [row for row in range(len(x)) if row != query]
        found.append(sorted(others, key=lambda r: (((x[r] - x[query]) ** 2).sum(), r))[:k])
    return found


@pytest.mark.parametrize("block_bytes", [1, 2**10, 2**25])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equals_sorting_all_distances(block_bytes, dtype, rng, monkeypatch):
    monkeypatch.setattr(neighbours, "_BLOCK_BYTES", block_bytes)
    x = rng.normal(size=(80, 5)).astype(dtype)
    for k in (1, 7, 79):
        found = nearest_neighbours(x, k)
        assert found.dtype == np.int64
        assert found.tolist() == by_sorting(x, k)


@settings(max_examples=60, deadline=None)
@given(arrays(np.float64, (13, 2), elements=st.integers(-2, 2).map(float)), st.integers(1, 12))
def test_orders_ties_by_number(x, k):
    assert nearest_neighbours(x, k).tolist() == by_sorting(x, k)


@settings(max_examples=60, deadline=None)
@given(
    arrays(np.float64, (9, 2), elements=st.integers(-2, 2).map(float)),
    arrays(np.float64, (13, 2), elements=st.integers(-2, 2).map(lambda x: x + 2.0**-26 * (x > 1))),
    st.integers(1, 13),
)
def test_distances_compare_as_the_exact_ones(x, gallery, k):
    frame = points.Frame.around(gallery, x)
    found, distances = nearest_rows(frame.points(x), frame.points(gallery), k)
    exact = np.square(x[:, None] - gallery[found]).sum(axis=2)
    for compare in (np.less, np.equal):
        by_estimate = compare(distances[:, None], distances[:, :, None])
        assert (by_estimate == compare(exact[:, None], exact[:, :, None])).all()


def test_orders_rows_that_are_equal_in_float32(rng):
    x = np.repeat([-1.0, 1.0], 30)[:, None] + 1e-6 * rng.normal(size=(60, 3))
    assert nearest_neighbours(x, 6).tolist() == by_sorting(x, 6)


def test_one_far_row_moves_no_other(rng):
    x = np.concatenate([rng.normal(size=(40, 3)), [[1e9, 0, 0]]])
    assert nearest_neighbours(x, 5).tolist() == by_sorting(x, 5)


@pytest.mark.parametrize("scale", [2.0**-900, 2.0**900])
def test_scale_does_not_matter(scale, rng):
    x = rng.normal(size=(30, 4))
    assert (nearest_neighbours(x * scale, 4) == nearest_neighbours(x, 4)).all()


def test_of_collapsed_rows_finds_the_first(monkeypatch, rng):
    monkeypatch.setattr(neighbours, "_CHUNK_ROWS", 3)
    assert nearest_neighbours(np.ones((8, 2)), 4).tolist() == by_sorting(np.ones((8, 2)), 4)
    assert nearest_neighbours(np.zeros((3, 2)), 2).tolist() == [[1, 2], [0, 2], [0, 1]]
    collapsed_classes = np.repeat(rng.normal(size=(5, 4)), 9, axis=0)
    assert nearest_neighbours(collapsed_classes, 4).tolist() == by_sorting(collapsed_classes, 4)


def test_chunks_of_candidates_change_nothing(monkeypatch, rng):
    x = np.repeat(rng.integers(0, 2, size=(20, 2)), 2, axis=0).astype(float)
    monkeypatch.setattr(neighbours, "_CHUNK_ROWS", 3)
    assert nearest_neighbours(x, 9).tolist() == by_sorting(x, 9)


def test_computes_the_distances(rng, monkeypatch):
    monkeypatch.setattr(points, "_CHUNK_ROWS", 7)
    x = rng.normal(size=(20, 3)).astype(np.float32)
    found = nearest_neighbours(x, 3)
    expected = [
        [np.linalg.norm(x[i].astype(float) - x[j]) for j in row] for i, row in enumerate(found)
    ]
    np.testing.assert_allclose(distances_to(x, found), expected, rtol=1e-12)
    np.testing.assert_allclose(
        distances_to(np.array([[0.0], [1e200]]), np.array([[1], [0]])), 1e200
    )
    assert distances_to(np.ones((2, 2)), np.array([[1], [0]])).tolist() == [[0], [0]]
    assert distances_to(x, np.empty((20, 0), int)).shape == (20, 0)


def test_rejects_bad_input():
    with pytest.raises(ValueError, match=r"`k` must not exceed the number of other rows. Rec"):
        nearest_neighbours(np.ones((3, 2)), 3)
    for k in (0, 1.5, True):
        with pytest.raises(ValueError, match=r"`k` must be an integer >= 1. Received: k="):
            nearest_neighbours(np.ones((3, 2)), k)
    with pytest.raises(TypeError, match="`embeddings` must be floats"):
        nearest_neighbours(np.ones((3, 2), int), 1)
    with pytest.raises(ValueError, match="`embeddings` must be finite"):
        nearest_neighbours(np.full((3, 2), np.nan), 1)
