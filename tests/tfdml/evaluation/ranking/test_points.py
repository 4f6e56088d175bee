import numpy as np
import pytest

from tfdml.evaluation.ranking.points import (
    Frame,
    nearness_bounds,
    score_bounds,
    squared_distances,
)


@pytest.mark.parametrize("scale", [2.0**-1060, 1.0, 2.0**1000])
@pytest.mark.parametrize("offset", [0, 1000])
def test_scores_outside_the_bounds_decide_which_row_is_nearer(scale, offset, rng):
    rows, others = ((rng.normal(size=(40, 9)) + offset) * scale for _ in range(2))
    frame = Frame.around(others, rows)
    queries, gallery = frame.points(rows), frame.points(others)
    assert max(np.abs(gallery.exact).max(), np.abs(queries.exact).max()) <= 2**10
    query, row = (of.reshape(-1) for of in np.indices((40, 40)))
    distances = squared_distances(queries.exact, query, gallery.exact, row).reshape(40, 40)
    expected = [[np.sum((b - a) ** 2) for b in gallery.exact] for a in queries.exact]
    np.testing.assert_allclose(distances, expected, rtol=1e-14)
    nearness = queries.nearness_rows() @ gallery.nearness_columns()
    np.testing.assert_allclose(nearness, -distances / 2, atol=1e-6 * distances.max())
    scores = queries.score_rows() @ gallery.score_columns()
    for values, bounds in ((scores, score_bounds), (nearness, nearness_bounds)):
        assert values.dtype == np.float32
        for limit in np.quantile(distances, [0, 0.1, 0.5, 0.9], axis=1):
            low, high = bounds(queries.squared_norms, limit, 9)
            assert (distances < limit[:, None])[values > high[:, None]].all()
            assert (distances > limit[:, None])[values < low[:, None]].all()
            # The bounds leave few rows to doubt.
            assert np.mean((values >= low[:, None]) & (values <= high[:, None])) < 0.05


def test_rows_of_usual_size_are_not_copied(rng):
    below = np.nextafter(np.float32(2**10), np.float32(0))
    for size, exponent in ((2.0**-12, -11), (2.0**-11, 0), (1, 0), (below, 0), (2.0**10, 11)):
        rows = size * rng.uniform(0.5, 1, (5, 3)).astype("float32")
        rows[0, 0] = size
        frame = Frame.around(rows)
        assert frame.exponent == exponent
        assert (frame.points(rows).exact is rows) == (exponent == 0)


def test_equal_rows_are_at_the_centre():
    for rows in (1, 2, 3003):
        x = np.full((rows, 3), 0.3, "float32")
        points = Frame.around(x).points(x)
        assert not points.factors[:, :-2].any()
        assert points.factors.dtype == np.float32
        assert points.exact is x
