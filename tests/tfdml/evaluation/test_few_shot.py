import numpy as np
import pytest

from tfdml.evaluation import draws, few_shot_accuracies
from tfdml.evaluation.draws import few_shot_scores
from tfdml.evaluation.report.tables import results_text


@pytest.mark.parametrize(("shots", "of_counts"), [(None, [1, 1, 2, 4]), (3, [1, 1, 3, 3])])
def test_equals_a_loop_over_the_rows_that_were_drawn(shots, of_counts, rng, monkeypatch):
    labels = rng.permutation(np.repeat([7, -2, 2**40, 2**53 + 1], [1, 2, 5, 8]))
    rows = rng.normal(size=(16, 3))
    masks = []
    draw = draws._drawn
    monkeypatch.setattr(
        draws, "_drawn", lambda *arguments: masks.append(draw(*arguments)) or masks[-1]
    )
    found = few_shot_accuracies(rows, labels, shots=shots, k=(1, 2), draws=4)
    ids = [7, -2, 2**40, 2**53 + 1]
    for number, drawn in enumerate(masks):
        assert [int(np.sum(drawn[labels == i])) for i in ids] == of_counts
        means = {i: rows[drawn & (labels == i)].mean(axis=0) for i in ids}
        for k in (1, 2):
            hits = []
            for row, label in zip(rows[~drawn], labels[~drawn].tolist(), strict=True):
                nearest = sorted(ids, key=lambda i, row=row: np.sum((row - means[i]) ** 2))
                hits.append(label in nearest[:k])
            assert found[k][number] == pytest.approx(np.mean(hits), abs=1e-12)
    assert len({mask.tobytes() for mask in masks}) > 1


def test_all_rows_are_drawn_alike_often(rng):
    classes, counts = np.repeat([0, 1], [4, 8]), np.array([4, 8])
    drawn = sum(draws._drawn(classes, counts, np.array([1, 4]), rng) for _ in range(4000)) / 4000
    np.testing.assert_allclose(drawn, np.repeat([0.25, 0.5], [4, 8]), atol=0.04)


def test_the_seed_chooses_the_draws(rng):
    rows, labels = rng.normal(size=(60, 3)), np.arange(60) % 6
    first, again, other = (
        few_shot_accuracies(rows, labels, draws=3, seed=seed) for seed in (1, 1, 2)
    )
    assert first == again != other


def test_more_shots_make_better_means(rng):
    labels = np.arange(400) % 10
    rows = rng.normal(size=(10, 8))[labels] + rng.normal(size=(400, 8))
    one, many = (np.mean(few_shot_accuracies(rows, labels, shots=n)[1]) for n in (1, 20))
    assert 0.1 < one < many - 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shots": 0}, "`shots` must be an integer >= 1. Received: shots=0"),
        ({"draws": 0}, "`draws` must be an integer >= 1. Received: draws=0"),
        ({"seed": -1}, "`seed` must be an integer >= 0. Received: seed=-1"),
        ({"k": 3}, "`k` must not exceed the number of means"),
    ],
)
def test_rejects_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        few_shot_accuracies(np.eye(4), [0, 0, 1, 1], **{"k": 1, **options})


def test_rejects_classes_of_single_rows():
    with pytest.raises(ValueError, match=r"a class must have 2 rows or more. Received: rows=4"):
        few_shot_accuracies(np.eye(4), np.arange(4))


def test_says_where_classes_have_fewer_rows_than_shots(rng):
    labels = np.array([0] * 6 + [1] * 4 + [2] * 2)
    with pytest.warns(UserWarning, match="2 of 3 classes have 4 rows or fewer"):
        few_shot_accuracies(rng.normal(size=(12, 3)), labels, shots=4, k=1)


def test_returns_the_mean_and_the_deviation_of_the_draws(rng):
    rows, labels = rng.normal(size=(60, 3)), np.arange(60) % 6
    results = few_shot_scores(rows, labels, k=(1, 3), draws=5, seed=7)
    for k, values in few_shot_accuracies(rows, labels, k=(1, 3), draws=5, seed=7).items():
        mean = sum(values) / 5
        assert results["scores"][f"top{k}"] == pytest.approx(mean, abs=1e-12)
        variance = sum((value - mean) ** 2 for value in values) / 4
        assert results["deviations"][f"top{k}"] == pytest.approx(variance**0.5, abs=1e-12)
    assert "\n\nStandard deviations over the draws:\n" in results_text(results)
    of_one = few_shot_scores(rows, labels, draws=1)
    assert of_one["deviations"] == {}
    assert "deviations" not in results_text(of_one)
