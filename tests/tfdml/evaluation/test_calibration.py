import numpy as np
import pytest

from tfdml import evaluation


@pytest.mark.parametrize(
    ("probability", "method"),
    [
        (lambda s: 1 / (1 + np.exp(-3 * s)), "platt"),
        (lambda s: np.where(s < 1, 0.2, 0.9), "isotonic"),
    ],
)
def test_probabilities_are_those_of_the_scores(probability, method, rng):
    scores, classes = rng.normal(size=5000), rng.integers(0, 50, 5000)
    right = rng.random(5000) < probability(scores)
    found, calibrated = evaluation.calibrate_probability(scores, right, classes)
    assert found == method
    asked = np.linspace(-9, 9, 99)
    values = calibrated(asked)
    assert (np.diff(values) >= 0).all()
    assert 0 < values[0] <= values[-1] < 1
    np.testing.assert_allclose(calibrated(scores).mean(), right.mean(), atol=0.01)
    assert np.abs(calibrated(scores) - probability(scores)).mean() < 0.02


@pytest.mark.parametrize("right", [np.ones(20, bool), np.zeros(20, bool)])
def test_one_outcome_has_a_probability_too(right, rng):
    _, calibrated = evaluation.calibrate_probability(rng.normal(size=20), right, np.arange(20) % 2)
    values = calibrated(np.array([-9.0, 0.0, 9.0]))
    assert (np.abs(values - right[0]) < 0.1).all()
    assert ((values > 0) & (values < 1)).all()


@pytest.mark.parametrize(
    ("right", "classes", "message"),
    [
        (np.ones(3, bool), np.arange(4), "`right` and `scores` must have the same batch size"),
        (np.ones(4, bool), np.zeros(4, int), "two classes or more. Received: classes=1"),
        (np.ones(4, bool), np.arange(3), "`classes` and `scores` must have the same"),
    ],
)
def test_probabilities_need_scores_of_two_classes(right, classes, message):
    with pytest.raises(ValueError, match=message):
        evaluation.calibrate_probability(np.arange(4.0), right, classes)


def test_reliability_is_of_bins_of_equal_numbers():
    probabilities = np.array([0.9, 0.1, 0.8, 0.2, 0.7, 0.1])
    right = np.array([True, False, True, True, False, False])
    found = evaluation.reliability(probabilities, right, bins=2)
    # Below the median of 0.45: 0.1, 0.1, 0.2, a third right; above it 0.7, 0.8, 0.9, two thirds.
    gaps = abs(0.4 / 3 - 1 / 3), abs(0.8 - 2 / 3)
    assert found.pop("ece") == pytest.approx(np.mean(gaps))
    expected = {"rows": [3, 3], "probability": [0.4 / 3, 0.8], "right": [1 / 3, 2 / 3]}
    assert found == {name: pytest.approx(values) for name, values in expected.items()}
    equal = evaluation.reliability(np.full(6, 0.25), right)
    assert equal == {"ece": 0.25, "rows": [6], "probability": [0.25], "right": [0.5]}
