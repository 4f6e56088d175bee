import math

import numpy as np
import pytest
from mean_loops import hits_by_loops, means_by_loops

from tfdml.evaluation import (
    few_shot_accuracies,
    one_per_class_scores,
    random_draws,
)


@pytest.mark.parametrize(("shots", "counts"), [(None, [1, 1, 2, 4]), (3, [1, 1, 3, 3])])
@pytest.mark.filterwarnings("ignore:2 of 4 classes")
def test_means_of_drawn_rows_classify_the_others_as_loops_do(shots, counts, rng, monkeypatch):
    classified, classify = [], random_draws.nearest_class_mean

    def recording(*data, **options):
        classified.append(data)
        return classify(*data, **options)

    monkeypatch.setattr(random_draws, "nearest_class_mean", recording)
    ids = [7, -2, 2**40, 2**53 + 1]
    labels = rng.permutation(np.repeat(ids, [1, 2, 5, 8]))
    rows = rng.normal(size=(16, 3))
    found = few_shot_accuracies(rows, labels, shots=shots, k=(1, 2), draws=4)
    for number, (train, train_labels, test, test_labels) in enumerate(classified):
        assert [int(np.sum(train_labels == i)) for i in ids] == counts
        assert sorted([*train[:, 0], *test[:, 0]]) == sorted(rows[:, 0])
        means = means_by_loops(train, train_labels)
        for k in (1, 2):
            expected = np.mean(hits_by_loops(test, test_labels, means, k))
            assert found[k][number] == pytest.approx(expected, abs=1e-12)
    assert len({train.tobytes() for train, *_ in classified}) > 1


@pytest.mark.parametrize("score", [few_shot_accuracies, one_per_class_scores])
def test_the_seed_chooses_the_draws(score, rng):
    rows, labels = rng.normal(size=(60, 3)), np.arange(60) % 12
    first, again, other = (score(rows, labels, k=1, draws=3, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


def test_says_where_classes_have_fewer_rows_than_shots(rng):
    labels = np.repeat([0, 1, 2], [6, 4, 2])
    with pytest.warns(UserWarning, match="2 of 3 classes have 4 rows or fewer") as reported:
        few_shot_accuracies(rng.normal(size=(12, 3)), labels, shots=4, k=1)
    assert reported[0].filename == __file__


def test_galleries_of_one_row_per_class_score_as_loops_over_all_of_them(rng):
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
    scores = one_per_class_scores(x, labels, k=1, draws=200, metrics=("map", "mrr"))
    assert scores["map"] == scores["mrr"]
    mean, deviation = scores["map"]
    gallery_means = np.mean(np.reshape(expected, (4, 2)), axis=1)
    assert mean == pytest.approx(np.mean(expected), abs=4 * np.std(gallery_means) / 200**0.5)
    assert 0.03 < deviation == pytest.approx(np.std(gallery_means), rel=0.2)
    once = one_per_class_scores(x, labels, k=1, draws=1)
    assert {deviation for _, deviation in once.values()} == {0.0}
    assert all(type(value) is float for pair in once.values() for value in pair)


X, Y = np.eye(4), np.array([0, 0, 1, 1])
SCORES = few_shot_accuracies, one_per_class_scores


@pytest.mark.parametrize(
    ("scores", "options", "error", "message"),
    [
        (SCORES, {"draws": 0}, ValueError, "`draws` must be an integer >= 1. .*draws=0"),
        (SCORES, {"seed": -1}, ValueError, "`seed` must be an integer >= 0. .*seed=-1"),
        (SCORES[:1], {"shots": 0}, ValueError, "`shots` must be an integer >= 1. .*shots=0"),
        (SCORES[:1], {"labels": np.arange(4)}, ValueError, "have 2 rows or more. .*rows=4"),
        (SCORES[1:], {"k": 3}, ValueError, "must not exceed the gallery size.*gallery_size=2"),
        (SCORES[1:], {"labels": np.arange(4)}, ValueError, "two rows or more .*classes=4"),
    ],
)
def test_rejects_wrong_input(scores, options, error, message):
    for score in scores:
        with pytest.raises(error, match=message):
            score(**{"embeddings": X, "labels": Y, "k": 1, **options})
