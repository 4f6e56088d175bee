import warnings

import numpy as np
import pytest
from sklearn.cluster import AffinityPropagation, KMeans

from tfdml.evaluation import cluster

METHODS = ("kmeans", "affinity_propagation")


def blobs(rng, classes, each, spread):
    """(rows, dim) and (rows,): classes on the corners of a simplex, sqrt(2) apart."""
    labels = rng.permutation(np.repeat(np.arange(classes), each))
    return np.eye(classes)[labels] + spread * rng.normal(size=(len(labels), classes)), labels


def partition(ids):
    return {frozenset(np.flatnonzero(ids == one)) for one in set(ids.tolist())}


def same(left, right):
    return partition(np.asarray(left)) == partition(np.asarray(right))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(("classes", "each"), [(2, 3), (6, 15), (20, 9)])
def test_finds_well_separated_blobs(method, dtype, classes, each, rng):
    x, labels = blobs(rng, classes, each, 0.02)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = cluster(x.astype(dtype), classes, method=method, restarts=1 + 4 * ("k" in method))
    assert found.dtype == np.int64
    assert set(found) == set(range(classes))
    assert same(found, labels)


def test_kmeans_is_that_of_scikit_learn(rng):
    x = rng.normal(size=(80, 3))
    expected = KMeans(7, n_init=2, random_state=5).fit_predict(x)
    assert np.array_equal(cluster(x, 7, seed=5, restarts=2), expected)


@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param(4, marks=pytest.mark.slow),
        9,
        pytest.param(13, marks=pytest.mark.slow),
        30,
    ],
)
def test_bisection_finds_the_number_without_clear_blobs(wanted, rng):
    found = cluster(rng.normal(size=(90, 3)), wanted, method="affinity_propagation")
    assert set(found) == set(range(wanted))


def test_affinity_is_minus_the_squared_distance(rng, monkeypatch):
    tried = []
    engine = affinity_propagation._clusters

    def spy(similarities, preference, seed):
        tried.append((preference, engine(similarities, preference, seed)))
        return tried[-1][1]

    monkeypatch.setattr(affinity_propagation, "_clusters", spy)
    x = rng.uniform(-0.5, 0.5, size=(50, 2))
    x[0, 0] = 0.9  # the largest number sets no scale between 0.5 and 1
    found = cluster(x, 8, method="affinity_propagation", seed=3)
    assert np.array_equal(found, tried[-1][1])
    counts = [len(set(ids)) for _, ids in sorted(tried, key=lambda pair: pair[0])]
    assert counts == sorted(counts)
    assert len(tried) > 1
    direct = np.array([[-np.sum((a - b) ** 2) for b in x] for a in x])
    options = {"damping": 0.9, "max_iter": 1000, "convergence_iter": 100}
    for preference, ids in tried:
        scikit = AffinityPropagation(
            affinity="precomputed", preference=preference, random_state=0, **options
        )
        assert same(scikit.fit_predict(direct), ids)


def test_clusters_have_exemplars_nearest_to_their_rows(rng):
    x, _ = blobs(rng, 5, 8, 0.1)
    found = cluster(x, 5, method="affinity_propagation")
    squared = np.sum((x[:, None] - x[None]) ** 2, axis=-1)
    medoids = [
        rows[np.argmin(squared[np.ix_(rows, rows)].sum(0))]
        for rows in (np.flatnonzero(found == one) for one in range(5))
    ]
    assert np.array_equal(np.argmin(squared[:, medoids], axis=1), found)


def test_warns_and_returns_the_nearest_number_where_no_preference_gives_it(monkeypatch):
    engine, counts = affinity_propagation._clusters, []

    def spy(*arguments):
        found = engine(*arguments)
        counts.append(found.max() + 1)
        return found

    monkeypatch.setattr(affinity_propagation, "_clusters", spy)
    corners = np.eye(6)  # all at one distance: either all alone or all together
    with pytest.warns(UserWarning, match=r"found (1|6) instead of 3 clusters"):
        found = cluster(corners, 3, method="affinity_propagation")
    assert len(set(found)) in (1, 6)
    pairs = np.array([[0.0], [0.0], [1.0], [1.0], [5.0], [5.0]])
    with pytest.warns(UserWarning, match=r"instead of 5 clusters"):
        found = cluster(pairs, 5, method="affinity_propagation")
    assert set(found) == set(range(found.max() + 1))
    assert abs(found.max() + 1 - 5) == min(abs(count - 5) for count in counts if count)


@pytest.mark.parametrize("method", METHODS)
def test_one_cluster_and_as_many_as_rows(method, rng):
    x = rng.normal(size=(9, 2))
    assert np.array_equal(cluster(x, 1, method=method), np.zeros(9))
    assert set(cluster(x, 9, method=method)) == set(range(9))
    assert np.array_equal(cluster(x[:1], 1, method=method), [0])


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("method", METHODS)
def test_is_the_same_for_the_same_seed(method, seed, rng):
    x = np.repeat(rng.integers(0, 3, size=(30, 2)).astype(float), 2, axis=0)  # many ties
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first, second = (cluster(x, 6, method=method, seed=seed) for _ in range(2))
    assert np.array_equal(first, second)


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e30, 1e200])
def test_affinity_propagation_takes_any_scale(scale, rng):
    x, labels = blobs(rng, 4, 6, 0.02)
    assert same(cluster(scale * x, 4, method="affinity_propagation"), labels)


def test_affinity_propagation_takes_rows_far_from_zero(rng):
    x, labels = blobs(rng, 4, 6, 0.02)
    assert same(cluster(1e9 + x, 4, method="affinity_propagation"), labels)


def test_affinity_propagation_leaves_its_input_alone(rng):
    x = rng.normal(size=(20, 3))
    before = x.copy()
    cluster(x, 4, method="affinity_propagation")
    assert np.array_equal(x, before)


def test_affinity_propagation_rejects_more_rows_than_memory_holds():
    with pytest.raises(ValueError, match=r"at most 10000 rows.*`method='kmeans'`.*rows=10001"):
        cluster(np.zeros((10_001, 1)), 2, method="affinity_propagation")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_clusters": 0}, "`num_clusters` must be an integer >= 1. Received: num_clusters=0"),
        ({"num_clusters": 2.0}, "`num_clusters` must be an integer >= 1"),
        ({"num_clusters": 5}, "not exceed the number of embeddings.*num_clusters=5, embeddings=4"),
        ({"method": "k-means"}, "`method` must be one of 'kmeans', 'affinity_propagation'"),
        ({"seed": -1}, "`seed` must be an integer >= 0"),
        ({"restarts": 0}, "`restarts` must be an integer >= 1"),
        ({"method": METHODS[1], "restarts": 2}, "`restarts` must be 1 for affinity.*restarts=2"),
    ],
)
def test_rejects_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        cluster(np.zeros((4, 2)), **{"num_clusters": 2, **options})


def test_rejects_what_are_no_embeddings():
    with pytest.raises(TypeError, match=r"`embeddings` must be floats\. Received: dtype=int64"):
        cluster(np.zeros((4, 2), int), 2)
    with pytest.raises(ValueError, match=r"shape \(n, dim\)\. Received: embeddings.shape=\(4,\)"):
        cluster(np.zeros(4), 2)
    with pytest.raises(ValueError, match="`embeddings` must not be empty"):
        cluster(np.zeros((0, 2)), 1)
    with pytest.raises(ValueError, match=r"must be finite\. Received: rows_not_finite=1"):
        cluster(np.array([[0.0], [np.nan]]), 1)
