import math
import warnings

import numpy as np
import pytest

from tfdml.evaluation import one_per_class_scores, retrieval_scores


def test_perfect_embeddings_score_one_in_every_draw(rng):
    labels = np.repeat(np.arange(8), 4) + 2**60
    x = np.repeat(100 * rng.normal(size=(8, 3)), 4, axis=0) + rng.normal(size=(32, 3))
    assert one_per_class_scores(x, labels, k=(1, 8)) == {
        "recall@1": (1.0, 0.0),
        "recall@8": (1.0, 0.0),
        "map": (1.0, 0.0),
    }


def test_equals_loops_over_all_galleries(rng):
    # Two classes of two rows and one of one: four galleries, equally likely.
    x, labels = rng.normal(size=(5, 2)), np.array([3, 3, 7, 7, 9])
    expected = []
    for first in (0, 1):
        for second in (2, 3):
            gallery, queries = [first, second, 4], [1 - first, 5 - second]
            for q in queries:
                distances = [math.dist(x[q], x[j]) for j in gallery]
                relevant = distances[[labels[j] for j in gallery].index(labels[q])]
                expected.append(1 / sum(distance <= relevant for distance in distances))
    scores = one_per_class_scores(x, labels, k=1, draws=500, metrics=("map", "mrr"))
    assert scores["map"] == scores["mrr"]
    mean, deviation = scores["map"]
    of_galleries = np.mean(np.reshape(expected, (4, 2)), axis=1)
    assert mean == pytest.approx(np.mean(expected), abs=4 * np.std(of_galleries) / 500**0.5)
    assert 0.03 < deviation == pytest.approx(np.std(of_galleries), rel=0.2)


def test_the_seed_decides_the_draws(rng):
    x, labels = rng.normal(size=(60, 3)), np.arange(60) % 12
    scores = [one_per_class_scores(x, labels, k=1, seed=seed) for seed in (0, 0, 1)]
    assert scores[0] == scores[1] != scores[2]
    once = one_per_class_scores(x, labels, k=1, draws=1)
    assert {deviation for _, deviation in once.values()} == {0.0}
    assert all(type(value) is float for pair in once.values() for value in pair)


def test_a_class_of_one_row_asks_nothing(rng):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no query is without a relevant row
        x, labels = np.array([[0.0], [1.0], [0.9]]), np.array([0, 0, 1])
        scores = one_per_class_scores(x, labels, k=(1, 2), draws=20)
    assert scores["recall@2"] == (1.0, 0.0)
    assert scores["recall@1"] == (0.0, 0.0)  # from 0 the row at 0.9 is nearer, and so from 1


def test_takes_a_similarity(rng):
    x, labels = rng.normal(size=(30, 3)), np.arange(30) % 6
    by_distance = one_per_class_scores(x, labels, k=2)
    similarity = {"similarity": lambda a, b: -np.square(a[:, None] - b).sum(axis=-1)}
    assert one_per_class_scores(x, labels, k=2, **similarity) == by_distance
    assert by_distance["recall@2"][0] != retrieval_scores(x, labels, k=2)["recall@2"]


X, Y = np.ones((4, 2)), np.array([0, 0, 1, 1])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"labels": np.arange(4)}, ValueError, "two rows or more of one class.*rows=4, classes=4"),
        ({"draws": 0}, ValueError, "`draws` must be an integer >= 1. Received: draws=0"),
        ({"seed": -1}, ValueError, "`seed` must be an integer >= 0. Received: seed=-1"),
        ({"k": 3}, ValueError, "must not exceed the gallery size.*gallery_size=2"),
        ({"labels": Y / 2}, TypeError, "`labels` must be integers"),
    ],
)
def test_rejects_wrong_input(options, error, message):
    with pytest.raises(error, match=message):
        one_per_class_scores(**{"embeddings": X, "labels": Y, "k": 1, **options})
