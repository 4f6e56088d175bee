import numpy as np
import pytest

from tfdml.evaluation import class_averages, macro_average


def test_by_hand():
    classes, means, counts = class_averages([1.0, 0.0, 0.5, 0.25], np.array([[9], [9], [-4], [9]]))
    assert (classes.tolist(), counts.tolist()) == ([-4, 9], [1, 3])
    assert means.tolist() == [0.5, 1.25 / 3]
    assert macro_average([1.0, 0.0, 0.5, 0.25], [9, 9, -4, 9]) == (0.5 + 1.25 / 3) / 2
    assert type(macro_average([True, False], [1, 1])) is float


def test_equals_loops(rng):
    values, labels = rng.random(200), rng.integers(0, 20, 200) + 2**60
    classes, means, counts = class_averages(values, labels)
    for class_id, mean, count in zip(classes, means, counts, strict=True):
        of_class = [value for value, label in zip(values, labels, strict=True) if label == class_id]
        assert (mean, count) == (pytest.approx(sum(of_class) / len(of_class)), len(of_class))
    assert macro_average(values, labels) == pytest.approx(sum(means) / len(means))


def test_is_the_plain_mean_for_classes_of_one_size(rng):
    values = rng.random(60)
    assert macro_average(values, np.arange(60) % 12) == pytest.approx(values.mean())


@pytest.mark.parametrize(
    ("values", "labels", "error", "message"),
    [
        ([1.0, 2.0], [1], ValueError, r"one number per label. Received: values.shape=\(2,\)"),
        ([], np.zeros(0, int), ValueError, "`values` must not be empty"),
        ([1.0, np.nan], [1, 2], ValueError, "must be finite. Received: values_not_finite=1"),
        ([1.0], [1.0], TypeError, "`labels` must be integers"),
        (["a"], [1], TypeError, "`values` must be numbers"),
    ],
)
def test_refuses_wrong_input(values, labels, error, message):
    with pytest.raises(error, match=message):
        class_averages(values, labels)
