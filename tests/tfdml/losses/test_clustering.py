"""How near the search comes to the best medoids, on any backend of Keras."""

import numpy as np
import oracles
import pytest
from backend import compiled

from tfdml import losses


def random_batches(rng, number):
    for _ in range(number):
        classes = rng.integers(2, 5)
        labels = np.append(np.arange(classes), rng.integers(classes, size=8 - classes))
        yield rng.permutation(labels), rng.normal(size=(8, 3))


@pytest.mark.parametrize(
    "options", [{}, {"gamma": 5.0, "squared": True, "normalize": False}], ids=str
)
def test_finds_the_best_medoids_of_nine_batches_in_ten(options, rng):
    loss, found = losses.get("clustering", **options), []
    evaluate = compiled(loss, 3, "float64")
    for labels, x in random_batches(rng, 40):
        best, (value, _) = oracles.value(loss, labels, x), evaluate(labels, x)
        assert value <= best + 1e-9
        found.append(value >= best - 1e-9)
    assert np.mean(found) >= 0.9


def test_ignores_the_order_of_equally_good_medoids(rng):
    evaluate = compiled(losses.get("clustering", gamma=3.0), 3, "float64")
    labels = np.array([0, 1, 2, 3, 3, 2, 1, 0])
    for _ in range(10):  # clusters of two rows, either of which may be the medoid
        order, x = rng.permutation(8), rng.normal(size=(8, 3))
        value, _ = evaluate(labels, x)
        np.testing.assert_allclose(evaluate(labels[order], x[order])[0], value, rtol=1e-7)
