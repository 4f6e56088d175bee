import numpy as np
import pytest

from tfdml.evaluation import class_density


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30])
def test_equals_a_loop_whatever_the_length_of_the_rows(scale, rng):
    labels = rng.choice([5, -3, 2**40], 60)
    rows = rng.normal(size=(60, 7)).astype("float32")
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True).astype("float64")
    classes = [units[labels == label] for label in (-3, 5, 2**40)]
    expected = [np.mean([np.sum((x - sum(of) / len(of)) ** 2) for x in of]) for of in classes]
    np.testing.assert_allclose(class_density(scale * rows, labels), expected, rtol=1e-5)


def test_dense_and_sparse_classes_and_rows_alone():
    rows = np.array([[2.0, 0], [3, 0], [1, 0], [-1, 0], [0, 1], [0, 0], [0, 0]])
    assert class_density(rows, np.array([0, 0, 1, 1, 2, 3, 3])).tolist() == [0, 1, 0, 0]
    with pytest.raises(ValueError, match="`embeddings` must be finite"):
        class_density(rows * np.nan, np.zeros(7, int))
