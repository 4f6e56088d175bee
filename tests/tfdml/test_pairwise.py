import numpy as np
import pytest
from keras import ops

from tfdml import pairwise


def numpy(tensor):
    return ops.convert_to_numpy(tensor)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-12)])
def test_distances_equal_those_of_a_loop(dtype, tolerance, rng):
    rows = rng.normal(size=(9, 4)) + 50
    expected = np.array([[np.linalg.norm(a - b) for b in rows] for a in rows])
    tensor = ops.convert_to_tensor(rows, dtype=dtype)
    np.testing.assert_allclose(numpy(pairwise.distances(tensor)), expected, atol=1e3 * tolerance)
    squared = numpy(pairwise.squared_distances(tensor))
    np.testing.assert_allclose(squared, expected**2, atol=1e3 * tolerance)


@pytest.mark.parametrize("dim", [2, 128, 1024])
def test_duplicates_are_at_distance_zero(dim, rng):
    rows = np.repeat(rng.normal(size=(40, dim)), 4, axis=0).astype("float32")
    distances = numpy(pairwise.distances(ops.convert_to_tensor(rows)))
    same = np.arange(160)[:, None] // 4 == np.arange(160)[None] // 4
    assert (distances[same] == 0).all()
    assert (distances[~same] > 0).all()


def test_close_rows_stay_apart_in_a_large_batch(rng):
    rows = rng.normal(size=(1000, 2))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows[1] = rows[0] * (1 + np.sqrt(20 * 2 * np.finfo("float32").eps))
    distances = numpy(pairwise.distances(ops.convert_to_tensor(rows.astype("float32"))))
    assert distances[0, 1] > 0


def test_empty_references_do_not_make_others_coincide():
    rows = 100 + np.array([[0.0], [0.05], [0.1]], "float32")
    empty = np.concatenate([rows, np.zeros((1000, 1), "float32")])
    found, expected = (
        numpy(pairwise.squared_distances(ops.convert_to_tensor(rows), ops.convert_to_tensor(each)))
        for each in (empty, rows.copy())
    )
    np.testing.assert_allclose(found[:, :3], expected, rtol=1e-3, atol=1e-5)
    assert found[0, 1] > 0


def test_closeness_orders_references_as_their_distances(rng):
    rows, references = (rng.normal(size=(n, 4)) + 50 for n in (5, 30))
    distances = np.linalg.norm(rows[:, None] - references, axis=2)
    tensors = (ops.convert_to_tensor(each, dtype="float32") for each in (rows, references))
    nearest_first = np.argsort(-numpy(pairwise.closeness(*tensors)), axis=1)
    np.testing.assert_array_equal(nearest_first, np.argsort(distances, axis=1))


def test_a_highest_number_of_each_row_is_found(rng):
    numbers = np.where(rng.random((50, 40)) < 0.3, -np.inf, rng.integers(0, 6, (50, 40)))
    numbers[3] = -np.inf
    found = numpy(pairwise.highest(ops.convert_to_tensor(numbers)))
    np.testing.assert_array_equal(numbers[np.arange(50), found], numbers.max(axis=1))


def test_unit_rows_have_length_one_whatever_they_were(rng):
    rows = rng.normal(size=(5, 3)) * np.array([[1e-25], [1e-3], [1.0], [1e15], [1e30]])
    unit = numpy(pairwise.normalize(ops.convert_to_tensor(rows, dtype="float32")))
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, rtol=1e-6)
    expected = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    np.testing.assert_allclose(unit, expected, atol=1e-6)
    assert not numpy(pairwise.normalize(ops.zeros((2, 3)))).any()


def test_masks_name_pairs_by_class():
    labels = ops.convert_to_tensor(np.array([5, 7, 5]))
    positive = [[False, False, True], [False, False, False], [True, False, False]]
    negative = [[False, True, False], [True, False, True], [False, True, False]]
    np.testing.assert_array_equal(numpy(pairwise.positive_mask(labels)), positive)
    np.testing.assert_array_equal(numpy(pairwise.negative_mask(labels)), negative)


def test_class_means_are_those_of_the_rows_of_a_class(rng):
    labels, rows = np.array([3, 1, 3, 3, 5]), rng.normal(size=(5, 4))
    means, sizes = map(
        ops.convert_to_numpy, pairwise.class_means(labels, ops.convert_to_tensor(rows))
    )
    assert sizes.tolist() == [3, 1, 3, 3, 1]
    for label in (1, 3, 5):
        expected = rows[labels == label].mean(axis=0)
        np.testing.assert_allclose(
            means[labels == label], expected[None].repeat((labels == label).sum(), 0)
        )


def test_masked_reductions_see_only_what_the_mask_lets_through():
    values = ops.convert_to_tensor([[1.0, 2.0, 9.0], [-3.0, 4.0, 9.0], [1.0, 1.0, 1.0]])
    mask = ops.convert_to_tensor([[True, True, False], [True, True, False], [False, False, False]])
    assert float(pairwise.masked_sum(values, mask)) == 4.0
    assert float(pairwise.masked_mean(values, mask)) == 1.0
    assert float(pairwise.masked_mean(values, ops.zeros_like(mask))) == 0.0
    np.testing.assert_allclose(numpy(pairwise.masked_max(values, mask, 1))[:2], [2, 4])
    np.testing.assert_allclose(numpy(pairwise.masked_min(values, mask, 1))[:2], [1, -3])
    expected = np.log(np.exp([1, -3]) + np.exp([2, 4]))
    np.testing.assert_allclose(
        numpy(pairwise.masked_logsumexp(values, mask, 1))[:2], expected, rtol=1e-6
    )
    for empty in (pairwise.masked_max, pairwise.masked_logsumexp):
        assert float(empty(values, mask, 1)[2]) < -1e29
    assert float(pairwise.masked_min(values, mask, 1)[2]) > 1e29
