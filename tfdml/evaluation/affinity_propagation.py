"""Affinity propagation with a given number of clusters, by bisection of its preference."""

import warnings

import numpy as np
from sklearn.cluster import AffinityPropagation
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import euclidean_distances

from tfdml.checks import check

MOST_ROWS = 10_000  # whose messages take about 5 GB
_BISECTIONS = 20
_ITERATIONS = 1000
_DAMPING = 0.9  # with less, some runs oscillate for ever
_AGREED_ITERATIONS = 100  # scikit-learn's 15 are too few for messages so damped


def affinity_propagation(embeddings, num_clusters, seed):
    """Returns (n,) int64 cluster ids, as described in `tfdml.evaluation.cluster`.

    Args:
        embeddings: (n, dim) finite floats.
        num_clusters: Integer from 1 to n; if it is not found, the nearest number is used.
        seed: Integer, seed of the noise that breaks ties of similarities.

    Raises:
        ValueError: If there are more than `MOST_ROWS` rows.
    """
    rows = len(embeddings)
    limit = f"at most {MOST_ROWS} rows, as its memory grows with their square"
    expectation = f"affinity propagation takes {limit}; `method='kmeans'` takes any number"
    check(rows <= MOST_ROWS, expectation, rows=rows)
    similarities = _similarities(embeddings)
    if num_clusters == 1 or not similarities.any():  # one cluster, or all rows are equal
        found = np.zeros(rows, np.int64)
    elif num_clusters == rows:
        found = np.arange(rows)
    else:
        found = _bisect(similarities, num_clusters, seed)
    count = found.max() + 1
    if count != num_clusters:
        message = f"affinity propagation found {count} instead of {num_clusters} clusters"
        warnings.warn(f"{message}, the nearest number for any preference tried", stacklevel=3)
    return found


def _bisect(similarities, num_clusters, seed):
    # One exemplar is best if a second costs more than all distances to the first; each row is its
    # own exemplar if it prefers itself to the nearest other row.
    few = np.log(-similarities.sum(axis=0).max())
    many = np.log(-similarities[similarities < 0].max() / 2)
    nearest, miss = None, np.inf
    for _ in range(_BISECTIONS):
        middle = (few + many) / 2
        clusters = _clusters(similarities, -np.exp(middle), seed)
        count = clusters.max() + 1
        if count and abs(count - num_clusters) < miss:
            nearest, miss = clusters, abs(count - num_clusters)
        if not miss:
            break
        few, many = (middle, many) if count < num_clusters else (few, middle)
    # If no run agreed on an exemplar, all rows form one cluster.
    return np.zeros(len(similarities), np.int64) if nearest is None else nearest


def _clusters(similarities, preference, seed):
    """(n,) int64 ids from 0; all -1 if no row became an exemplar."""
    options = {"affinity": "precomputed", "preference": preference, "random_state": seed}
    limits = {"max_iter": _ITERATIONS, "convergence_iter": _AGREED_ITERATIONS}
    engine = AffinityPropagation(damping=_DAMPING, **options, **limits)
    with warnings.catch_warnings():
        # A run that still oscillates has clusters too; the search continues from their number.
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "All samples have mutually equal similarities")
        return engine.fit_predict(similarities).astype(np.int64)


def _similarities(embeddings):
    """(n, n) float64, -D**2 of rows scaled so that squares neither overflow nor underflow."""
    exponent = np.frexp(np.abs(embeddings).max())[1]
    rows = np.ldexp(embeddings.astype(np.float64), -exponent)
    rows -= np.median(rows, axis=0)  # keeps the precision of distances of rows far from the origin
    squared = euclidean_distances(rows, squared=True)
    return np.negative(squared, out=squared)
