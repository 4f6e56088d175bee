import json
import pathlib
import warnings

import numpy as np
import pytest
from sklearn.cluster import AffinityPropagation, KMeans
from sklearn.metrics import adjusted_mutual_info_score

from tfdml.evaluation import cluster, clustering_f1, clustering_scores, nmi
from tfdml.evaluation import clusters as module

GOLDEN = json.loads((pathlib.Path(__file__).parents[2] / "golden" / "golden.json").read_text())
METHODS = ("kmeans", "affinity_propagation")


def blobs(rng):
    """(48, 6) and (48,): six classes on the corners of a simplex, sqrt(2) apart."""
    labels = rng.permutation(np.repeat(np.arange(6), 8))
    return np.eye(6)[labels] + 0.02 * rng.normal(size=(48, 6)), labels


def partition(ids):
    return {frozenset(np.flatnonzero(ids == one)) for one in set(ids.tolist())}


@pytest.mark.parametrize(
    ("method", "dtype", "scale", "offset"),
    [
        *((method, dtype, 1, 0) for method in METHODS for dtype in ("float16", "float64")),
        *((METHODS[1], "float64", *to) for to in ((1, 1e9), (1e-200, 0), (1e200, 0))),
    ],
)
def test_finds_well_separated_blobs(method, dtype, scale, offset, rng):
    x, labels = blobs(rng)
    x = (scale * x + offset).astype(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = cluster(x, 6, method=method, restarts=5 if method == "kmeans" else 1)
    assert found.dtype == np.int64
    assert set(found) == set(range(6))
    assert partition(found) == partition(labels)


def test_kmeans_is_that_of_scikit_learn(rng):
    x = rng.normal(size=(80, 3))
    expected = KMeans(7, n_init=2, random_state=5).fit_predict(x)
    assert np.array_equal(cluster(x, 7, seed=5, restarts=2), expected)


def test_affinity_is_minus_the_squared_distance(monkeypatch, rng):
    tried = []

    class Recorded(AffinityPropagation):
        def fit_predict(self, similarities):
            found = super().fit_predict(similarities)
            tried.append((self.preference, found.max() + 1, similarities))
            return found

    monkeypatch.setattr(module, "AffinityPropagation", Recorded)
    x = rng.uniform(-0.5, 0.5, size=(50, 2))
    x[0, 0] = 0.9  # the largest number sets no scale between 0.5 and 1
    found = cluster(x, 8, method="affinity_propagation", seed=3)
    assert set(found) == set(range(8))
    counts = [count for _, count, _ in sorted(tried, key=lambda run: run[0])]
    assert counts == sorted(counts)
    np.testing.assert_allclose(tried[0][2], -np.square(x[:, None] - x).sum(axis=2), atol=1e-12)


@pytest.mark.parametrize(
    ("rows", "wanted", "found"),
    [
        (np.eye(6), 3, {1, 6}),  # all at one distance: either all alone or all together
        ([[0.0], [0.0], [1.0], [1.0], [5.0], [5.0]], 5, {4, 6}),
        (np.ones((4, 2)), 2, {1}),
    ],
)
def test_warns_where_no_preference_gives_the_number(rows, wanted, found):
    with pytest.warns(UserWarning, match=rf"found \d instead of {wanted} clusters"):
        clusters = cluster(np.array(rows), wanted, method="affinity_propagation")
    assert clusters.max() + 1 in found
    assert set(clusters) == set(range(clusters.max() + 1))


@pytest.mark.parametrize("method", METHODS)
def test_one_cluster_and_as_many_as_rows(method, rng):
    x = rng.normal(size=(9, 2))
    assert np.array_equal(cluster(x, 1, method=method), np.zeros(9))
    assert set(cluster(x, 9, method=method)) == set(range(9))
    assert np.array_equal(cluster(x[:1], 1, method=method), [0])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_clusters": 0}, ValueError, "must be an integer >= 1 and < 5. Rec.*num_clusters=0"),
        ({"num_clusters": 5}, ValueError, "must be an integer >= 1 and < 5. Rec.*num_clusters=5"),
        ({"method": "k-means"}, ValueError, "must be one of 'kmeans', 'affinity_propagation'"),
        ({"restarts": 0}, ValueError, "`restarts` must be an integer >= 1. Received: restarts=0"),
        ({"method": METHODS[1], "restarts": 2}, ValueError, "`restarts` must be 1 .*restarts=2"),
        ({"embeddings": np.zeros((10_001, 1)), "method": METHODS[1]}, ValueError, "at most 10000 "),
    ],
)
def test_rejects_what_cannot_be_clustered(arguments, error, message):
    with pytest.raises(error, match=message):
        cluster(**{"embeddings": np.zeros((4, 2)), "num_clusters": 2, **arguments})


@pytest.fixture
def scores_of(monkeypatch):
    """The scores of given clusters."""

    def scores(clusters, labels, score=clustering_scores):
        monkeypatch.setattr(module, "cluster", lambda *_, **__: clusters)
        return score(np.zeros((len(labels), 1)), labels)

    return scores


@pytest.mark.filterwarnings("ignore")  # the number may be missed
@pytest.mark.parametrize("method", METHODS)
def test_scores_are_of_the_clusters_of_a_seed(method, scores_of, rng):
    x, labels = rng.normal(size=(60, 3)), rng.integers(0, 6, 60)
    x[40:] = x[20:40]  # duplicates, also of other classes
    found = clustering_scores(x, labels, method=method, seed=2)
    assert clustering_scores(x, labels, method=method, seed=2) == found
    assert clustering_f1(x, labels, method=method, seed=2) == found["f1"]
    if method == "kmeans":
        assert nmi(x, labels, seed=2) == found["nmi"]
        assert len({nmi(x, labels, seed=seed) for seed in range(4)}) > 1
    assert scores_of(cluster(x, 6, method=method, seed=2), labels) == found


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_equal_the_golden_values(dtype, scores_of):
    golden, labels = GOLDEN["metrics"], np.array(GOLDEN["inputs"]["E"]["y"])
    clusters = np.array(golden["clusters"])
    found = scores_of(clusters, labels.astype(dtype) + 2**60)
    assert found["nmi"] == pytest.approx(golden["nmi_arithmetic"], abs=1e-12)
    assert found["ami"] == adjusted_mutual_info_score(labels, clusters)
    assert found["f1"] == pytest.approx(golden["pair_P_R_F1"][2], abs=1e-15)


@pytest.mark.filterwarnings("ignore")  # scikit-learn and cluster() both warn of the collapse
@pytest.mark.parametrize("method", METHODS)
def test_collapsed_embeddings_score_by_chance(method):
    labels, share = np.repeat(np.arange(4), 5), 4 * 10 / 190  # of positive pairs
    scores = clustering_scores(np.full((20, 3), 0.3), labels, method=method)
    assert scores["nmi"] == scores["ami"] == 0
    assert scores["f1"] == pytest.approx(2 * share / (1 + share), abs=1e-15)
