import collections
import itertools
import json
import math
import pathlib

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score
from sklearn.metrics.cluster import pair_confusion_matrix

from tfdml.evaluation import cluster, clustering, clustering_f1, clustering_scores, nmi

GOLDEN = json.loads((pathlib.Path(__file__).parents[2] / "golden" / "golden.json").read_text())


GOLDEN_PARTITIONS = (
    np.array(GOLDEN["metrics"]["clusters"]),
    np.array(GOLDEN["inputs"]["E"]["y"]),
)
METHODS = ("kmeans", "affinity_propagation")


def test_equals_the_golden_value():
    score = clustering._normalized_mutual_information(*GOLDEN_PARTITIONS)
    assert score == pytest.approx(GOLDEN["metrics"]["nmi_arithmetic"], abs=1e-12)


def test_f1_equals_the_golden_value():
    _, _, f1 = GOLDEN["metrics"]["pair_P_R_F1"]
    assert clustering._pair_f1(*GOLDEN_PARTITIONS) == pytest.approx(f1, abs=1e-15)


def by_loops(clusters, labels):
    """NMI and F1, of sets of rows and of all pairs of them."""
    clusters, labels, rows = clusters.tolist(), labels.tolist(), len(labels)
    members = [
        [{i for i in range(rows) if ids[i] == wanted} for wanted in set(ids)]
        for ids in (clusters, labels)
    ]
    entropies = [-sum(len(s) / rows * math.log(len(s) / rows) for s in sets) for sets in members]
    information = sum(
        len(a & b) / rows * math.log(rows * len(a & b) / (len(a) * len(b)))
        for a, b in itertools.product(*members)
        if a & b
    )
    together = positive = both = 0
    for i, j in itertools.combinations(range(rows), 2):
        together += clusters[i] == clusters[j]
        positive += labels[i] == labels[j]
        both += clusters[i] == clusters[j] and labels[i] == labels[j]
    precision, recall = both / together, both / positive
    return 2 * information / sum(entropies), 2 * precision * recall / (precision + recall)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_scores_equal_loops_over_all_pairs_and_scikit_learn(method, dtype, rng):
    x, labels = rng.normal(size=(60, 3)), (rng.integers(0, 6, 60) + 2**60).astype(dtype)
    x[:30] += labels[:30, None] % 6
    x[40:] = x[20:40]  # duplicates, also of other classes
    clusters = cluster(x, 6, method=method, seed=2)
    scores = clustering_scores(x, labels, method=method, seed=2)
    assert [scores["nmi"], scores["f1"]] == pytest.approx(by_loops(clusters, labels), abs=1e-12)
    assert 0.05 < scores["ami"] < scores["nmi"] < 0.95
    expected = normalized_mutual_info_score(labels, clusters)
    assert scores["nmi"] == pytest.approx(expected, abs=1e-12)
    expected = adjusted_mutual_info_score(labels, clusters)
    assert scores["ami"] == pytest.approx(expected, abs=1e-12)
    (_, false_positives), (false_negatives, positives) = pair_confusion_matrix(labels, clusters)
    expected = 2 * positives / (2 * positives + false_positives + false_negatives)
    assert scores["f1"] == pytest.approx(expected, abs=1e-12)
    assert clustering_f1(x, labels, method=method, seed=2) == scores["f1"]
    if method == "kmeans":
        assert nmi(x, labels, seed=2) == scores["nmi"]


def test_ami_equals_the_mean_over_all_permutations():
    clusters, labels = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 2, 2])

    def information(labels):
        return entropies - clustering._entropy(clustering._common_sizes(clusters, labels))

    entropies = sum(clustering._entropy(clustering._sizes(ids)) for ids in (clusters, labels))
    chance = np.mean([information(np.array(p)) for p in itertools.permutations(labels)])
    expected = (information(labels) - chance) / (entropies / 2 - chance)
    score = clustering._adjusted_mutual_information(clusters, labels)
    assert score == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("classes", [1, 3, 7, 24])
def test_scores_are_exactly_one_where_clusters_are_classes(method, classes, rng):
    labels = np.arange(24) % classes
    x = 100.0 * labels[:, None] ** 2 + rng.uniform(size=(24, 1))
    expected = {"nmi": 1.0, "ami": 1.0, "f1": 1.0}
    assert clustering_scores(x, labels - 2**40, method=method) == expected


@pytest.mark.filterwarnings("ignore")  # scikit-learn and cluster() both warn of the collapse
@pytest.mark.parametrize("method", METHODS)
def test_collapsed_embeddings_score_by_chance(method):
    labels = np.repeat(np.arange(4), 5)
    scores = clustering_scores(np.full((20, 3), 0.3), labels, method=method)
    share = 4 * 10 / 190  # of positive pairs
    assert scores["nmi"] == scores["ami"] == 0
    assert scores["f1"] == pytest.approx(2 * share / (1 + share), abs=1e-15)


def test_noise_scores_near_zero_in_ami_alone(rng):
    scores = clustering_scores(rng.normal(size=(300, 4)), rng.permutation(np.arange(300) % 60))
    assert abs(scores["ami"]) < 0.05
    assert scores["f1"] < 0.1
    assert scores["nmi"] > 0.5


def test_pairs_of_as_many_rows_as_stanford_online_products_are_counted_exactly(rng):
    one, labels = np.zeros(60_502, np.int32), rng.integers(0, 11_316, 60_502)
    positive = sum(math.comb(size, 2) for size in collections.Counter(labels.tolist()).values())
    assert clustering._pair_f1(one, labels) == 2 * positive / (positive + math.comb(60_502, 2))
    assert clustering._pair_f1(labels, labels + 2**40) == 1.0
    assert clustering._pair_f1(np.arange(60_502), one) == 0.0


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
@pytest.mark.parametrize("score", [nmi, clustering_scores, clustering_f1])
def test_rejects_wrong_options(score, options, message):
    with pytest.raises(ValueError, match=message):
        score(np.zeros((4, 2)), np.arange(4), **options)


@pytest.mark.parametrize("score", [nmi, clustering_scores, clustering_f1])
def test_rejects_swapped_arguments_and_other_lengths(score):
    with pytest.raises(TypeError, match="must be floats"):
        score(np.arange(4), np.zeros((4, 2)))
    with pytest.raises(ValueError, match="same batch size"):
        score(np.zeros((4, 2)), np.arange(3))
