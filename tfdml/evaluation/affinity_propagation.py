"""Affinity propagation with a wanted number of clusters, by bisection on its preference."""

import warnings

import numpy as np
from sklearn.cluster import AffinityPropagation
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import euclidean_distances

from tfdml.checks import check

MOST_ROWS = 10_000  # whose messages take about 5 GB
_BISECTIONS = 20
_ITERATIONS = 1000
_DAMPING = 0.9  # less of it lets some runs swing for ever
_AGREED_ITERATIONS = 100  # after scikit-learn's 15 such slow messages have hardly set out


def affinity_propagation(embeddings, num_clusters, seed):
    """Returns (n,) int64 cluster ids; `tfdml.evaluation.cluster` says how.

    Args:
        embeddings: (n, dim) finite floats.
        num_clusters: Integer from 1 to n; the nearest number is returned where it is not found.
        seed: Integer that draws the noise between equal similarities.

    Raises:
        ValueError: If there are more than `MOST_ROWS` rows.
    """
    rows = len(embeddings)
    check(
        rows <= MOST_ROWS,
        f"affinity propagation takes at most {MOST_ROWS} rows, as its memory grows with their "
        "square; `method='kmeans'` takes any number",
        rows=rows,
    )
    similarities = _similarities(embeddings)
    if num_clusters == 1 or not similarities.any():  # nothing to search for, or to tell apart
        found = np.zeros(rows, np.int64)
    elif num_clusters == rows:
        found = np.arange(rows)
    else:
        found = _bisect(similarities, num_clusters, seed)
    count = found.max() + 1
    if count != num_clusters:
        warnings.warn(
            f"affinity propagation found {count} instead of {num_clusters} clusters, the "
            "nearest number that any preference tried gave",
            stacklevel=4,
        )
    return found


def _bisect(similarities, num_clusters, seed):
    # One exemplar is best if it costs more to prefer a second than all rows lie from the first;
    # every row is its own if it prefers itself to the nearest other.
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
    # Not one run that agreed on an exemplar: one cluster is what they failed to divide.
    return np.zeros(len(similarities), np.int64) if nearest is None else nearest


def _clusters(similarities, preference, seed):
    """(n,) int64 ids from 0; all -1 where no row became an exemplar."""
    engine = AffinityPropagation(
        affinity="precomputed",
        preference=preference,
        damping=_DAMPING,
        max_iter=_ITERATIONS,
        convergence_iter=_AGREED_ITERATIONS,
        random_state=seed,
    )
    with warnings.catch_warnings():
        # A run that still swings has clusters too, and the search goes on from their number.
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "All samples have mutually equal similarities")
        return engine.fit_predict(similarities).astype(np.int64)


def _similarities(embeddings):
    """(n, n) float64, -D**2 of rows at a scale where squares neither overflow nor vanish."""
    exponent = np.frexp(np.abs(embeddings).max())[1]
    rows = np.ldexp(embeddings.astype(np.float64), -exponent)
    rows -= np.median(rows, axis=0)  # the products of far rows would lose the digits of their gap
    squared = euclidean_distances(rows, squared=True)
    return np.negative(squared, out=squared)
