"""Clustering scores: whether the groups in the embedding space are the classes."""

import numpy as np
from sklearn.cluster import KMeans

from tfdml.evaluation import inputs


def nmi(embeddings, labels, *, seed=0, restarts=1):
    """Tells how much k-means clusters of the embeddings and the classes say about each other.

    With Omega the clusters, C the classes, I their mutual information and H the entropy:

        nmi = 2 * I(Omega, C) / (H(Omega) + H(C))

    The engine is scikit-learn's KMeans (k-means++ starts, Lloyd's iterations, at most 300), with
    as many clusters as there are classes, on the rows as given: not normalised. The score depends
    on `seed` and `restarts`, so state both with it. One iteration costs n * classes * dim
    multiplications: seconds for CUB-200-2011, much longer for 11,316 classes.

    Args:
        embeddings: (n, dim) floats, finite.
        labels: (n,) or (n, 1) integers of any size, one class id per row.
        seed: Integer >= 0 and below 2**32; the same seed gives the same score.
        restarts: Starts of k-means, of which the tightest counts; >= 1. Papers use 1 to 10.

    Returns:
        A Python float in [0, 1]; 1 when the clusters are the classes. With a single class, where
        both entropies are 0, it is 1: one cluster is one class.

    Raises:
        TypeError: If `labels` are not integers or `embeddings` not floats.
        ValueError: If shapes disagree, an input is empty or not finite, or an option is out of
            range.

    Source:
        Manning, Raghavan, Schuetze. Introduction to information retrieval. 2008, sec. 16.3.
        The arithmetic mean of the entropies; scikit-learn before 0.22 took the geometric one.

    Example:
        >>> import numpy as np
        >>> line = np.array([[0.0], [0.1], [5.0], [5.1]])
        >>> nmi(line, np.array([7, 7, 9, 9]))
        1.0
    """
    embeddings, labels = inputs.embeddings_and_labels(embeddings, labels)
    seed = inputs.whole_number(seed, "seed", at_least=0, below=2**32)
    restarts = inputs.whole_number(restarts, "restarts", at_least=1)
    kmeans = KMeans(len(np.unique(labels)), init="k-means++", n_init=restarts, random_state=seed)
    return _normalized_mutual_information(kmeans.fit_predict(embeddings), labels)


def _normalized_mutual_information(clusters, labels):
    clusters = np.unique(clusters, return_inverse=True)[1].astype(np.int64)
    classes = np.unique(labels, return_inverse=True)[1].astype(np.int64)
    # Pairs that occur, not the table of all: 11,316 classes would need a gigabyte.
    pairs = clusters * (classes.max() + 1) + classes
    entropies = _entropy(clusters) + _entropy(classes)
    if entropies == 0:
        return 1.0
    information = entropies - _entropy(pairs)
    return float(np.clip(2 * information / entropies, 0.0, 1.0))


def _entropy(groups):
    counts = np.unique(groups, return_counts=True)[1]
    # Sorted, so that the same group sizes give the same float under any numbering.
    shares = np.sort(counts) / len(groups)
    return float(-np.sum(shares * np.log(shares)))
