import numpy as np
import pytest

from tfdml.evaluation import average_views, split_levels, weigh_levels


def levels_of(rng, dtype="float32"):
    rows = rng.normal(size=(5, 3, 4))
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    return rows.astype(dtype)


def test_splits_into_the_levels_in_order(rng):
    rows = levels_of(rng)
    for level, part in enumerate(split_levels(rows.reshape(5, 12), 3)):
        np.testing.assert_array_equal(part, rows[:, level])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_ensemble_weighs_distances_of_the_levels(rng, dtype):
    rows, weights = levels_of(rng, dtype), np.array([1, 2, 3])
    ensemble = weigh_levels(rows.reshape(5, 12), weights)
    assert ensemble.dtype == dtype
    np.testing.assert_allclose(np.linalg.norm(ensemble, axis=1), 1, rtol=1e-6)
    of_levels = np.sum((rows[0] - rows[1]) ** 2, axis=1)
    expected = np.sum(weights**2 * of_levels) / np.sum(weights**2)
    np.testing.assert_allclose(np.sum((ensemble[0] - ensemble[1]) ** 2), expected, rtol=1e-5)


def test_a_weight_of_zero_leaves_a_level_out(rng):
    rows = levels_of(rng)
    of_deepest = weigh_levels(rows.reshape(5, 12), (0, 0, 7.0)).reshape(5, 3, 4)
    np.testing.assert_allclose(of_deepest[:, 2], rows[:, 2], rtol=1e-6)
    assert not of_deepest[:, :2].any()


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        ((1, 1), ValueError, r"must have the shape \(n, levels \* dim\). .*\(5, 3\), levels=2"),
        ((1, -1, 1), ValueError, r"`level_weights\[1\]` must be >= 0. Received: .*=-1"),
        ((0, 0, 0), ValueError, r"`level_weights` must not all be 0"),
        (("1", 1, 1), TypeError, r"`level_weights\[0\]` must be a number"),
    ],
)
def test_rejects_wrong_weights(weights, error, message):
    with pytest.raises(error, match=message):
        weigh_levels(np.ones((5, 3), "float32"), weights)


def test_raw_levels_are_made_unit_length_and_zero_rows_stay(rng):
    raw = rng.normal(size=(5, 12)) * np.repeat([1e-3, 1.0, 50.0], 4)
    raw[2, :4] = 0
    ensemble = weigh_levels(raw, (1, 2, 3)).reshape(5, 3, 4)
    lengths = np.linalg.norm(ensemble, axis=2) * np.sqrt(14)
    np.testing.assert_allclose(lengths[[0, 1, 3, 4]], np.tile([1, 2, 3], (4, 1)))
    np.testing.assert_allclose(lengths[2], [0, 2, 3])


def test_rejects_integers():
    with pytest.raises(TypeError, match=r"must be floats. Received: dtype=.int64."):
        weigh_levels(np.array([[1, 0, 0, 1]]), (3, 4))


def test_rejects_embeddings_that_do_not_divide():
    with pytest.raises(ValueError, match=r"\(n, levels \* dim\). Received: .*\(5, 4\), levels=3"):
        split_levels(np.ones((5, 4)), 3)
    with pytest.raises(ValueError, match=r"\(n, levels \* dim\). Received: .*\(4,\), levels=2"):
        split_levels(np.ones(4), 2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("levels", [1, 3])
def test_equals_a_loop(levels, dtype, rng):
    views = rng.normal(size=(5, 7, 12)).astype(dtype)
    dim = 12 // levels
    expected = np.empty((7, 12))
    for row in range(7):
        for level in range(levels):
            part = slice(level * dim, (level + 1) * dim)
            units = [view[row, part] / np.linalg.norm(view[row, part]) for view in views]
            total = sum(units)
            expected[row, part] = total / np.linalg.norm(total)
    found = average_views(views, levels)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, atol=1e-6 if dtype == "float32" else 1e-12)


def test_equal_views_give_the_view(rng):
    view = rng.normal(size=(4, 6))
    unit = view / np.linalg.norm(view, axis=1, keepdims=True)
    np.testing.assert_allclose(average_views(np.stack([view] * 10)), unit, atol=1e-12)


def test_views_that_cancel_give_nothing():
    assert average_views(np.array([[[2.0, 0.0]], [[-1.0, 0.0]]])).tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize(
    ("embeddings", "error", "message"),
    [
        (np.zeros((2, 6)), ValueError, r"\(views, n, levels \* dim\). .*shape=\(2, 6\)"),
        (np.zeros((0, 2, 6)), ValueError, r"\(views, n, levels \* dim\)"),
        (np.zeros((2, 2, 5)), ValueError, r"\(n, levels \* dim\). .*levels=2"),
        (np.zeros((2, 2, 6), int), TypeError, "must be floats"),
    ],
)
def test_rejects_other_shapes(embeddings, error, message):
    with pytest.raises(error, match=message):
        average_views(embeddings, 2)
