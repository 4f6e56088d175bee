import numpy as np
import pytest

from tfdml.evaluation.report import page as module
from tfdml.evaluation.report.page import planar_map


def test_keeps_classes_together(rng):
    labels = np.repeat(np.arange(4), 25)
    rows, places = planar_map(5 * np.eye(4)[labels] + 0.1 * rng.normal(size=(100, 4)))
    assert rows.tolist() == list(range(100))
    gaps = np.linalg.norm(places[:, None] - places, axis=2) + 9 * np.eye(100)
    assert (labels[gaps.argmin(axis=1)] == labels).all()


def test_draws_a_sample_by_the_seed(rng, monkeypatch):
    monkeypatch.setattr(module, "_MOST_ROWS", 20)
    x = rng.normal(size=(60, 3))
    (rows, places), (again, same), (other, _) = (planar_map(x, seed=seed) for seed in (1, 1, 2))
    assert rows.tolist() == sorted(set(rows.tolist())) == again.tolist()
    assert len(rows) == len(places) == 20
    assert (same == places).all()
    assert (other != rows).any()


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
def test_fills_the_plane_without_hiding_a_row(x):
    _, places = planar_map(x)
    assert len(np.unique(places, axis=0)) == len(x)
    assert -1e-12 < places.min() <= places.max() < 1 + 1e-12
    assert np.isclose(np.ptp(places, axis=0).max(), 1)


@pytest.mark.parametrize("x", [np.eye(4), np.ones((9, 3)), np.zeros((9, 3))])
def test_has_none_of_few_or_equal_rows(x):
    assert [len(found) for found in planar_map(x)] == [0, 0]
