import numpy as np
import pytest

from tfdml.evaluation import class_density


def test_equals_a_loop_whatever_the_length_of_the_rows(rng):
    labels = rng.choice([5, -3, 2**40], 60)
    rows = rng.normal(size=(60, 7)).astype("float32")
    expected = []
    for label in sorted(set(labels.tolist())):
        units = [row / np.linalg.norm(row) for row in rows[labels == label].astype("float64")]
        mean = sum(units) / len(units)
        expected.append(sum(np.sum((unit - mean) ** 2) for unit in units) / len(units))
    for scale in (1.0, 1e-30, 1e30):
        found = class_density(scale * rows, labels)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_dense_and_sparse_classes_and_rows_alone():
    rows = np.array([[2.0, 0], [3, 0], [1, 0], [-1, 0], [0, 1], [0, 0], [0, 0]])
    assert class_density(rows, np.array([0, 0, 1, 1, 2, 3, 3])).tolist() == [0, 1, 0, 0]


def test_rejects_rows_that_are_not_finite():
    with pytest.raises(ValueError, match="`embeddings` must be finite"):
        class_density(np.array([[np.nan, 0.0]]), np.array([0]))
