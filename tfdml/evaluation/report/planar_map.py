"""A two-dimensional map of the embedding space."""

import warnings
from typing import NamedTuple

import numpy as np
from sklearn.manifold import TSNE

_MOST_ROWS = 2000  # a map of so many takes seconds
_FEWEST_ROWS = 5
_PERPLEXITY = 30
_FIRST_SPREAD = 1e-4  # standard deviation of the initial places of t-SNE


class PlanarMap(NamedTuple):
    rows: np.ndarray  # (m,) int64, those drawn, ascending
    places: np.ndarray  # (m, 2) float64 in [0, 1]


def planar_map(embeddings, *, most_rows=_MOST_ROWS, seed=0):
    """Places rows on a plane by t-SNE of their Euclidean distances.

    Args:
        embeddings: (n, dim) floats, finite.
        most_rows: Largest number of rows; of more rows a uniform random sample is used.
        seed: Seed of the sample and of t-SNE.

    Returns:
        A `PlanarMap`, or None if there are fewer than 5 rows, or all are equal.

    Source:
        Van der Maaten, Hinton. Visualizing data using t-SNE. JMLR 2008. Scikit-learn's Barnes-Hut
        t-SNE, initialised with the two principal components.
    """
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.permutation(len(embeddings))[:most_rows])
    drawn = embeddings[rows].astype(np.float64)
    drawn = np.ldexp(drawn, -int(np.frexp(np.abs(drawn).max())[1]))
    drawn -= drawn.mean(axis=0)
    largest = np.abs(drawn).max()
    if len(rows) < _FEWEST_ROWS or not largest:
        return None
    drawn /= largest
    perplexity = min(_PERPLEXITY, (len(rows) - 1) / 3)
    engine = TSNE(perplexity=perplexity, init=_principal_plane(drawn, rng), random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        places = engine.fit_transform(drawn.astype(np.float32)).astype(np.float64)
    low, high = places.min(axis=0), places.max(axis=0)
    return PlanarMap(rows, 0.5 + (places - (low + high) / 2) / ((high - low).max() or 1.0))


def _principal_plane(rows, rng):
    """(m, 2) float32 places on the two principal components, jittered where they coincide."""
    variances, directions = np.linalg.eigh(rows.T @ rows)
    plane = rows @ directions[:, np.argsort(variances)[::-1][:2]]
    plane = np.pad(plane, ((0, 0), (0, 2 - plane.shape[1])))
    plane = plane / plane[:, 0].std() * _FIRST_SPREAD
    jitter = rng.normal(size=plane.shape) * _FIRST_SPREAD / 100
    return (plane + jitter).astype(np.float32)
