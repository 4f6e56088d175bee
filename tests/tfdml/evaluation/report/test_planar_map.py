import numpy as np
import pytest

from tfdml.evaluation.report.planar_map import planar_map


def test_keeps_classes_together(rng):
    labels = np.repeat(np.arange(4), 25)
    found = planar_map(5 * np.eye(4)[labels] + 0.1 * rng.normal(size=(100, 4)))
    assert found.rows.tolist() == list(range(100))
    assert found.places.min() >= 0
    assert found.places.max() <= 1
    assert np.isclose(np.ptp(found.places, axis=0).max(), 1)
    gaps = np.linalg.norm(found.places[:, None] - found.places, axis=2) + 9 * np.eye(100)
    assert (labels[gaps.argmin(axis=1)] == labels).all()


def test_draws_a_sample_by_the_seed(rng):
    x = rng.normal(size=(60, 3))
    found = planar_map(x, most_rows=20, seed=1)
    assert found.rows.tolist() == sorted(set(found.rows.tolist()))
    assert len(found.rows) == len(found.places) == 20
    again, other = (planar_map(x, most_rows=20, seed=seed) for seed in (1, 2))
    assert (again.rows == found.rows).all()
    assert (again.places == found.places).all()
    assert (other.rows != found.rows).any()


@pytest.mark.parametrize(
    "x",
    [
        np.arange(9.0)[:, None],
        np.repeat(np.eye(2), 5, axis=0),
        1e300 * np.eye(6),
        1e-300 * np.eye(6),
        np.eye(5, 300, dtype=np.float32),
    ],
    ids=["one dim", "duplicates", "huge", "tiny", "few rows of many dims"],
)
def test_is_finite_for(x):
    places = planar_map(x).places
    assert np.isfinite(places).all()
    assert np.isclose(np.ptp(places, axis=0).max(), 1)


@pytest.mark.parametrize("x", [np.eye(4), np.ones((9, 3)), np.zeros((9, 3))])
def test_has_none_of_few_or_equal_rows(x):
    assert planar_map(x) is None
