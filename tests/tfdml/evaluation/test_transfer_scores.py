import numpy as np
import pytest

from tfdml.evaluation import few_shot_accuracies, zero_shot_accuracy, zero_shot_per_query
from tfdml.evaluation.report.tables import results_text
from tfdml.evaluation.transfer_scores import few_shot_scores, zero_shot_scores


def test_tells_the_mean_and_the_deviation_of_the_draws(rng):
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


HIERARCHY = {1: "a", 2: "b", 7: "a", 8: "b", 9: "c"} | dict.fromkeys("abc", "root")


@pytest.mark.parametrize("unseen", [(7, 8, 9), (7, 8)])
def test_rows_of_classes_with_kin_are_scored_among_all(unseen, rng):
    rows, labels = rng.normal(size=(20, 3)), np.arange(20) % 2 + 1
    unseen_labels = rng.choice(unseen, 30)
    data = (rows, labels, HIERARCHY, rng.normal(size=(30, 3)), unseen_labels)
    results = zero_shot_scores(*data, k=(1, 2), weights="depth")
    with_kin = unseen_labels != 9
    for kind, words in (("expected", "in random order"), ("as_one", "as one class")):
        options = {"k": (1, 2), "equal_means": kind, "weights": "depth"}
        found = {k: results["unseen"][words][f"top{k}"] for k in (1, 2)}
        assert found == pytest.approx(zero_shot_accuracy(*data, **options), abs=1e-12)
        for name, hits in zero_shot_per_query(*data, **options).items():
            if 9 in unseen:
                alone = results["unseen"][f"{words}, with kin"][name]
                assert alone == pytest.approx(hits[with_kin].mean(), abs=1e-12)
    assert len(results["unseen"]) == (6 if 9 in unseen else 3)
    assert results["classes"] == {"known": 2, "unseen": len(unseen), "unseen_with_kin": 2}
    words, table = results_text(results).split("\nOf ")[1].split("\n", 1)
    assert words.startswith(f"{len(unseen)} unseen classes 2 have related ones among 2 known")
    columns = {len(line) for line in table.splitlines()}
    assert len(columns) == 1  # of one width
