import numpy as np
import pytest
from mean_loops import hits_by_loops, means_by_loops

from tfdml.evaluation import (
    class_density,
    class_means,
    nearest_class_mean,
    nearest_class_mean_per_query,
)


@pytest.mark.filterwarnings("ignore:2 of 60 test rows")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["spread", "grid"])
def test_equals_loops(kind, dtype, rng):
    rows, labels = rng.normal(size=(120, 6)).astype(dtype), rng.integers(0, 12, 120) + 2**40
    if kind == "grid":  # many exact ties
        rows = rows[:, :2].round()
    labels[:2] = [3, 2**62]  # a class each, of which no row trains
    data = rows[60:], labels[60:], rows[:60], labels[:60]
    means = means_by_loops(*data[:2])
    ids, found = class_means(*data[:2])
    assert ids.tolist() == list(means)
    np.testing.assert_allclose(found, list(means.values()), rtol=1e-12)
    values = nearest_class_mean_per_query(*data, k=(1, 5))
    scores = nearest_class_mean(*data, k=(5, 1))
    for k in (1, 5):
        expected = hits_by_loops(*data[2:], means, k)
        assert values[f"top{k}"].tolist() == expected
        assert scores[k] == pytest.approx(np.mean(expected), abs=1e-12)
    assert 0 < scores[5] < 1


@pytest.mark.parametrize("scale", [1e-150, 1e150, 1e308])
def test_means_of_tiny_and_of_huge_rows(scale, rng):
    rows, labels = rng.uniform(-1, 1, (120, 6)), np.arange(120) % 12
    means, tiny_or_huge = (class_means(factor * rows, labels)[1] for factor in (1, scale))
    np.testing.assert_allclose(tiny_or_huge / scale, means, rtol=1e-12)
    if scale < 1e300:
        data = [(factor * rows, labels, factor * rows, labels) for factor in (1, scale)]
        assert nearest_class_mean(*data[0]) == nearest_class_mean(*data[1])


def test_means_may_be_made_unit_length():
    train = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.2], [0.0, 0.0]])
    labels = np.array([0, 0, 1, 2])
    ids, means = class_means(train, labels, normalize=True)
    assert ids.tolist() == [0, 1, 2]
    np.testing.assert_allclose(means[:2], [[0.5**0.5] * 2, np.array([1, 0.2]) / 1.04**0.5])
    assert means[2].tolist() == [0.0, 0.0]
    # By angle nearer to the mean at 0.785 than to that at 0.197, which is longer as it is.
    data = train[:3], labels[:3], np.array([[np.cos(0.52), np.sin(0.52)]]), [0]
    found = [nearest_class_mean(*data, k=1, renormalize_means=unit)[1] for unit in (False, True)]
    assert found == [0.0, 1.0]


def test_rows_of_classes_without_training_rows_are_misses_with_a_warning():
    message = "1 of 2 test rows are of classes without a training row"
    with pytest.warns(UserWarning, match=message) as reported:
        scores = nearest_class_mean(np.eye(2), [0, 1], np.eye(2), [0, 5], k=(1, 2))
    assert scores == {1: 0.5, 2: 0.5}
    assert reported[0].filename == __file__


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30])
def test_density_equals_a_loop_whatever_the_length_of_the_rows(scale, rng):
    labels = rng.choice([5, -3, 2**40], 60)
    rows = rng.normal(size=(60, 7)).astype("float32")
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True).astype("float64")
    classes = [units[labels == label] for label in (-3, 5, 2**40)]
    expected = [np.mean([np.sum((x - sum(of) / len(of)) ** 2) for x in of]) for of in classes]
    np.testing.assert_allclose(class_density(scale * rows, labels), expected, rtol=1e-5)


def test_density_of_dense_and_sparse_classes_and_rows_alone():
    rows = np.array([[2.0, 0], [3, 0], [1, 0], [-1, 0], [0, 1], [0, 0], [0, 0]])
    assert class_density(rows, np.array([0, 0, 1, 1, 2, 3, 3])).tolist() == [0, 1, 0, 0]


X, Y = np.zeros((8, 5)), np.arange(8)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((X, Y, X, Y / 2), {}, TypeError, "`test_labels` must be integers. Received: dtype=float"),
        ((X, Y, X[:, :4], Y), {}, ValueError, "`train_embeddings` and `test_embeddings` must hav"),
        ((X, Y, X, Y), {"k": 9}, ValueError, "`k` must not exceed the number of means. .*means=8"),
    ],
)
def test_rejects_wrong_input(arguments, options, error, message):
    with pytest.raises(error, match=message):
        nearest_class_mean(*arguments, **options)
