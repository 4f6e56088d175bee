import numpy as np
import pytest

from tfdml.evaluation import average_views, first_dims, split_levels, weigh_levels


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("weights", [(1, 2, 3), (0, 0, 7.0)])
def test_an_ensemble_is_of_weighted_levels_of_unit_length(weights, dtype, rng):
    levels = (rng.normal(size=(3, 5, 4)) * [[[1e-3]], [[1.0]], [[50.0]]]).astype(dtype)
    expected = [weight * unit(level) for weight, level in zip(weights, levels, strict=True)]
    levels[0, 2] = expected[0][2] = 0  # zeros stay
    rows = np.concatenate(levels, axis=1)
    np.testing.assert_array_equal(split_levels(rows, 3), levels)
    ensemble = weigh_levels(rows, weights)
    assert ensemble.dtype == dtype
    expected = np.concatenate(expected, axis=1) / np.linalg.norm(weights)
    np.testing.assert_allclose(ensemble, expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("levels", [1, 3])
def test_views_are_averaged_as_by_a_loop(levels, dtype, rng):
    views = rng.normal(size=(5, 7, 12)).astype(dtype)
    expected = np.empty((7, levels, 12 // levels))
    for row in range(7):
        for level in range(levels):
            units = [unit(view[row].reshape(levels, -1)[level].astype(float)) for view in views]
            expected[row, level] = unit(sum(units))
    found = average_views(views, levels)
    assert found.dtype == dtype
    atol = 1e-6 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(found, expected.reshape(7, 12), atol=atol)


def test_views_that_cancel_give_nothing():
    assert average_views(np.array([[[2.0, 0.0]], [[-1.0, 0.0]]])).tolist() == [[0.0, 0.0]]


def test_the_first_numbers_have_unit_length_where_all_had_it(rng):
    raw = rng.normal(size=(5, 6))
    np.testing.assert_array_equal(first_dims(raw, 4), raw[:, :4])
    cut = first_dims(unit(raw).astype("float32"), 4)
    assert cut.dtype == "float32"
    np.testing.assert_allclose(cut, unit(raw[:, :4]), rtol=1e-5)


X = np.ones((5, 3), "float32")


@pytest.mark.parametrize(
    ("function", "arguments", "error", "message"),
    [
        (split_levels, (X, 2), ValueError, r"\(n, levels \* dim\). .*\(5, 3\), levels=2"),
        (split_levels, (X.astype(int), 3), TypeError, "must be floats. .*dtype='int64'"),
        (split_levels, (X[0], 3), ValueError, r"\(n, levels \* dim\). .*\(3,\), levels=3"),
        (weigh_levels, (X, (1, -1, 1)), ValueError, r"`level_weights\[1\]` must be >= 0. .*=-1"),
        (weigh_levels, (X, (0, 0, 0)), ValueError, "`level_weights` must not all be 0"),
        (weigh_levels, (X, ("1", 1, 1)), TypeError, r"`level_weights\[0\]` must be a number"),
        (first_dims, (X, 4), ValueError, "`dims` must not exceed .*dims=4, embedding_dim=3"),
        (first_dims, (X, 1.0), TypeError, "`dims` must be an integer"),
        (average_views, (X,), ValueError, r"\(views, n, levels \* dim\). .*shape=\(5, 3\)"),
        (average_views, (X[:0, None],), ValueError, r"\(views, n, levels \* dim\)"),
        (average_views, (X[None], 2), ValueError, r"\(n, levels \* dim\). .*levels=2"),
    ],
)
def test_rejects_what_cannot_be_split_weighed_or_averaged(function, arguments, error, message):
    with pytest.raises(error, match=message):
        function(*arguments)
