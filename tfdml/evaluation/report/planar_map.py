"""A two-dimensional map of the embedding space, by scikit-learn's t-SNE."""

import warnings

import numpy as np
from sklearn.manifold import TSNE

_MOST_ROWS = 2000  # a map of so many takes seconds
_FEWEST_ROWS = 5
_PERPLEXITY = 30
_JITTER = 1e-6  # of the largest difference: equal rows do not hide each other


def planar_map(embeddings, *, seed=0):
    """(m,) ascending numbers of at most 2,000 rows, and their (m, 2) places in [0, 1].

    m is 0 if there are fewer than 5 rows, or all are equal.
    """
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.permutation(len(embeddings))[:_MOST_ROWS])
    drawn = embeddings[rows].astype(np.float64)
    drawn /= np.abs(drawn).max() or 1.0
    drawn -= drawn[0]
    largest = np.abs(drawn).max()
    if len(rows) < _FEWEST_ROWS or not largest:
        return rows[:0], drawn[:0, :0]
    drawn = np.pad(drawn / largest, ((0, 0), (0, 1)))  # to two columns or more
    drawn += _JITTER * rng.normal(size=drawn.shape)
    perplexity = min(_PERPLEXITY, (len(rows) - 1) / 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        places = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(drawn)
    low, high = places.min(axis=0).astype(np.float64), places.max(axis=0)
    places = places - (low + high) / 2
    return rows, 0.5 + places / ((high - low).max() or 1.0)
