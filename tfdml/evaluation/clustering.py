"""Clustering scores: whether the groups in the embedding space are the classes."""

import numpy as np
from sklearn.metrics import adjusted_mutual_info_score

from tfdml.evaluation import clusters, inputs


def clustering_scores(embeddings, labels, *, method=clusters.KMEANS, seed=0, restarts=1):
    """Tells how well clusters of the embeddings, as many as there are classes, are the classes.

    With Omega the clusters, C the classes, I their mutual information, H the entropy, and E the
    mean over all clusterings of the same sizes:

        nmi = 2 * I(Omega, C) / (H(Omega) + H(C))
        ami = (I(Omega, C) - E[I]) / ((H(Omega) + H(C)) / 2 - E[I])

    and with TP the pairs of rows that share a cluster and a class, FP those that share a cluster
    only, FN those that share a class only:

        f1 = 2 * TP / (2 * TP + FP + FN)

    All three of one clustering, that of `cluster`, on the rows as given: not normalised. NMI rises
    with the number of clusters by chance alone: random groups of 60,502 rows, 11,316 of either
    kind, score 0.81. AMI does not; its cost grows with clusters * classes.

    Args:
        embeddings: (n, dim) floats, finite.
        labels: (n,) or (n, 1) integers of any size, one class id per row.
        method: "kmeans", or "affinity_propagation" of at most 10,000 rows; see `cluster`, also for
            the number of clusters, which the latter may miss, with a warning.
        seed: Integer >= 0 and below 2**32; the same seed gives the same scores.
        restarts: Starts of k-means, of which the tightest counts; >= 1. Papers use 1 to 10.

    Returns:
        {"nmi", "ami", "f1"}, Python floats at most 1, and exactly 1 when the clusters are the
        classes, as they are with a single class. "nmi" and "f1" are >= 0; "ami" is about 0 by
        chance, and may fall below it.

    Raises:
        TypeError: If `labels` are not integers or `embeddings` not floats.
        ValueError: If shapes disagree, an input is empty or not finite, or an option is out of
            range.

    Source:
        Manning, Raghavan, Schuetze. Introduction to information retrieval. 2008, sec. 16.3.
        Vinh, Epps, Bailey. Information theoretic measures for clusterings comparison. JMLR 2010.
        Both with the arithmetic mean of the entropies; scikit-learn before 0.22 took the geometric
        one for NMI. Song et al. (CVPR 2016) print NMI as I / (2 (H + H)) and compute it as here.

    Example:
        Two of four rows in the right company: TP = 1, FP = 2 and FN = 1.

        >>> import numpy as np
        >>> line = np.array([[0.0], [0.1], [0.2], [5.0]])
        >>> scores = clustering_scores(line, np.array([7, 7, 9, 9]))
        >>> {name: round(value, 3) for name, value in scores.items()}
        {'nmi': 0.344, 'ami': 0.0, 'f1': 0.4}
    """
    partitions = _clusters_and_classes(embeddings, labels, method, seed, restarts)
    return {
        "nmi": _normalized_mutual_information(*partitions),
        "ami": _adjusted_mutual_information(*partitions),
        "f1": _pair_f1(*partitions),
    }


def nmi(embeddings, labels, *, seed=0, restarts=1):
    """Tells how much k-means clusters of the embeddings and the classes say about each other.

    With Omega the clusters, C the classes, I their mutual information and H the entropy:

        nmi = 2 * I(Omega, C) / (H(Omega) + H(C))

    It is the "nmi" of `clustering_scores`, alone. The clusters are those of `cluster`, as many as
    there are classes, on the rows as given: not normalised. The score depends on `seed` and
    `restarts`, so state both with it.

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
    partitions = _clusters_and_classes(embeddings, labels, clusters.KMEANS, seed, restarts)
    return _normalized_mutual_information(*partitions)


def clustering_f1(embeddings, labels, *, method=clusters.KMEANS, seed=0, restarts=1):
    """Tells how well pairs of rows of one cluster are pairs of one class, and the reverse.

    It is the "f1" of `clustering_scores`, alone: the harmonic mean of TP / (TP + FP), the share of
    the pairs within clusters that share a class, and TP / (TP + FN), the share of the pairs within
    classes that share a cluster. Counts are exact. It is no F1 of retrieval or mean over classes.

    Args:
        embeddings: (n, dim) floats, finite.
        labels: (n,) or (n, 1) integers of any size, one class id per row.
        method: As for `clustering_scores`.
        seed: Integer >= 0 and below 2**32; the same seed gives the same score.
        restarts: As for `clustering_scores`.

    Returns:
        A Python float in [0, 1]; 1 when the clusters are the classes, also where no two rows share
        either. One cluster of everything scores 2 P / (1 + P), with P the share of positive pairs.

    Raises:
        TypeError: If `labels` are not integers or `embeddings` not floats.
        ValueError: If shapes disagree, an input is empty or not finite, or an option is out of
            range.

    Source:
        Manning, Raghavan, Schuetze. Introduction to information retrieval. 2008, sec. 16.3.

    Example:
        Of the three pairs within clusters one is of a class, and of the two pairs of a class one.

        >>> import numpy as np
        >>> line = np.array([[0.0], [0.1], [0.2], [5.0]])
        >>> clustering_f1(line, np.array([7, 7, 9, 9]))
        0.4
    """
    return _pair_f1(*_clusters_and_classes(embeddings, labels, method, seed, restarts))


def _clusters_and_classes(embeddings, labels, method, seed, restarts):
    embeddings, labels = inputs.embeddings_and_labels(embeddings, labels)
    options = clusters.options(method, seed, restarts)
    return clusters.clusters_of(embeddings, len(np.unique(labels)), *options), labels


def _normalized_mutual_information(groups, labels):
    entropies = _entropy(_sizes(groups)) + _entropy(_sizes(labels))
    if entropies == 0:
        return 1.0
    information = entropies - _entropy(_common_sizes(groups, labels))
    return float(np.clip(2 * information / entropies, 0.0, 1.0))


def _adjusted_mutual_information(groups, labels):
    common = len(_common_sizes(groups, labels))
    if common == len(_sizes(groups)) == len(_sizes(labels)):
        return 1.0  # scikit-learn's sums round, and are 0 / 0 where every row is its own class
    score = adjusted_mutual_info_score(labels, groups, average_method="arithmetic")
    return float(min(score, 1.0))


def _pair_f1(groups, labels):
    in_both = _pairs(_common_sizes(groups, labels))
    in_either_twice = _pairs(_sizes(groups)) + _pairs(_sizes(labels))  # 2 TP + FP + FN
    return 2 * in_both / in_either_twice if in_either_twice else 1.0


def _pairs(sizes):
    return int(np.sum(sizes * (sizes - 1) // 2))


def _sizes(groups):
    return np.unique(groups, return_counts=True)[1].astype(np.int64)


def _common_sizes(groups, labels):
    """The sizes of the groups of rows that share both, of those that occur."""
    groups = np.unique(groups, return_inverse=True)[1].astype(np.int64)
    classes = np.unique(labels, return_inverse=True)[1].astype(np.int64)
    # Not the table of all: 11,316 classes would need a gigabyte.
    return _sizes(groups * (classes.max() + 1) + classes)


def _entropy(sizes):
    # Sorted, so that the same group sizes give the same float under any numbering.
    shares = np.sort(sizes) / sizes.sum()
    return float(-np.sum(shares * np.log(shares)))
