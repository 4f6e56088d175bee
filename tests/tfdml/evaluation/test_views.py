import numpy as np
import pytest

from tfdml.evaluation import average_views


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
def test_refuses_other_shapes(embeddings, error, message):
    with pytest.raises(error, match=message):
        average_views(embeddings, 2)
