import json
import pathlib

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score

from tfdml.evaluation import clustering, nmi

GOLDEN = json.loads((pathlib.Path(__file__).parents[2] / "golden" / "golden.json").read_text())


def test_equals_the_golden_value():
    score = clustering._normalized_mutual_information(
        np.array(GOLDEN["metrics"]["clusters"]), np.array(GOLDEN["inputs"]["E"]["y"])
    )
    assert score == pytest.approx(GOLDEN["metrics"]["nmi_arithmetic"], abs=1e-12)


@pytest.mark.parametrize("restarts", [1, 3])
def test_equals_scikit_learn_on_its_clusters(restarts, rng):
    x, labels = rng.normal(size=(120, 4)), rng.integers(0, 7, 120) + 2**40
    clusters = KMeans(7, n_init=restarts, random_state=3).fit_predict(x)
    expected = normalized_mutual_info_score(labels, clusters)
    assert nmi(x, labels, seed=3, restarts=restarts) == pytest.approx(expected, abs=1e-12)


def test_is_one_for_separate_classes_and_small_for_noise(rng):
    labels = np.arange(200) % 5
    assert nmi(100.0 * labels[:, None] + rng.normal(size=(200, 1)), labels) == 1.0
    assert nmi(rng.normal(size=(200, 4)), labels) < 0.15


def test_is_the_same_for_the_same_seed(rng):
    x, labels = rng.normal(size=(150, 4)), rng.integers(0, 9, 150)
    assert nmi(x, labels, seed=1) == nmi(x, labels, seed=1)
    assert len({nmi(x, labels, seed=seed) for seed in range(4)}) > 1


def test_a_single_class_scores_one(rng):
    assert nmi(rng.normal(size=(9, 2)), np.full(9, 4)) == 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": -1}, r"`seed` must be an integer >= 0 and < 4294967296\. Received: seed=-1$"),
        ({"seed": 2**32}, r"integer >= 0 and < 4294967296\. Received: seed=4294967296$"),
        ({"restarts": 0}, "`restarts` must be an integer >= 1. Received: restarts=0"),
    ],
)
def test_refuses_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        nmi(np.zeros((4, 2)), np.arange(4), **options)
