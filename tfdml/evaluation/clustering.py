"""Clusters of embeddings, and how they agree with the classes."""

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix

from tfdml.checks import check, check_one_of
from tfdml.evaluation import inputs
from tfdml.evaluation.affinity_propagation import affinity_propagation

KMEANS, AFFINITY_PROPAGATION = METHODS = ("kmeans", "affinity_propagation")


def cluster(embeddings, num_clusters, *, method=KMEANS, seed=0, restarts=1):
    """Clusters embeddings by Euclidean distance, without labels.

    "kmeans" is scikit-learn's KMeans (k-means++ starts, Lloyd's iterations, at most 300). One
    iteration costs n * num_clusters * dim multiplications: seconds for CUB-200-2011, much longer
    for 11,316 clusters.

    "affinity_propagation" passes messages between all pairs, of similarity -D**2, until rows agree
    on exemplars. Its parameter is not the number of clusters but a `preference`, the similarity of
    a row to itself; a higher one gives more clusters. The search bisects the logarithm of
    -preference, at most 20 times, until there are `num_clusters`; otherwise it warns and returns
    the nearest number found. It takes about 48 * n**2 bytes (1.7 GB for the 5,924 rows of
    CUB-200-2011) and up to 20 * 1000 iterations over all pairs.

    Args:
        embeddings: (n, dim) floats, finite; taken as given: not normalised.
        num_clusters: Integer from 1 to n.
        method: "kmeans", or "affinity_propagation" for at most 10,000 rows.
        seed: Integer >= 0 and below 2**32; the same seed gives the same clusters. For affinity
            propagation it seeds the noise, of relative size 1e-16, that breaks ties.
        restarts: Number of k-means restarts, >= 1; the best is kept. Must be 1 for affinity
            propagation, which has no random start.

    Returns:
        (n,) int64, the cluster of every row, numbered from 0. k-means returns at most as many
        clusters as there are different rows: a single one for collapsed embeddings.

    Raises:
        TypeError: If `embeddings` are not floats.
        ValueError: If they have another shape, are empty, not finite or too many, or an option is
            out of range.

    Source:
        Arthur, Vassilvitskii. k-means++: the advantages of careful seeding. SODA 2007.
        Frey, Dueck. Clustering by passing messages between data points. Science 2007.
        Song et al. Deep metric learning via lifted structured feature embedding. CVPR 2016, sec. 5,
        names affinity propagation with bisection; the code released with it runs k-means.
        Differs: the authors' bisection stops within 10 % of the number instead of at the nearest.

    Example:
        >>> import numpy as np
        >>> line = np.array([[0.0], [0.1], [5.0], [5.1]])
        >>> first, second, third, fourth = cluster(line, 2, method="affinity_propagation")
        >>> bool(first == second != third == fourth)
        True
    """
    embeddings = inputs.finite_rows(embeddings)
    check_one_of(METHODS, method=method)
    seed = inputs.whole_number(seed, "seed", at_least=0, below=2**32)
    restarts = inputs.whole_number(restarts, "restarts", at_least=1)
    expectation = "`restarts` must be 1 for affinity propagation, which has no random start"
    check(method == KMEANS or restarts == 1, expectation, restarts=restarts)
    num_clusters = inputs.whole_number(num_clusters, "num_clusters", at_least=1)
    received = {"num_clusters": num_clusters, "embeddings": len(embeddings)}
    expectation = "`num_clusters` must not exceed the number of embeddings"
    check(num_clusters <= len(embeddings), expectation, **received)
    if method == AFFINITY_PROPAGATION:
        return affinity_propagation(embeddings, num_clusters, seed)
    kmeans = KMeans(num_clusters, init="k-means++", n_init=restarts, random_state=seed)
    return kmeans.fit_predict(embeddings).astype(np.int64)


def clustering_scores(embeddings, labels, *, method=KMEANS, seed=0, restarts=1):
    """NMI, AMI and pair F1 of a clustering of the embeddings into as many clusters as classes.

    With Omega the clusters, C the classes, I their mutual information, H the entropy, and E the
    mean over all clusterings of the same sizes:

        nmi = 2 * I(Omega, C) / (H(Omega) + H(C))
        ami = (I(Omega, C) - E[I]) / ((H(Omega) + H(C)) / 2 - E[I])

    and with TP the pairs of rows that share a cluster and a class, FP those that share a cluster
    only, FN those that share a class only:

        f1 = 2 * TP / (2 * TP + FP + FN)

    All three are of one clustering by `cluster`, on the rows as given: not normalised. NMI rises
    with the number of clusters by chance alone: random clusters of 60,502 rows, 11,316 clusters and
    as many classes, score 0.81. AMI does not; its cost grows with clusters * classes.

    Args:
        embeddings: (n, dim) floats, finite.
        labels: (n,) or (n, 1) integers of any size, one class id per row.
        method: "kmeans", or "affinity_propagation" for at most 10,000 rows; see `cluster`. The
            latter may return another number of clusters, with a warning.
        seed: Integer >= 0 and below 2**32; the same seed gives the same scores.
        restarts: Number of k-means restarts, >= 1; the best is kept. Papers use 1 to 10.

    Returns:
        {"nmi", "ami", "f1"}, Python floats at most 1, and exactly 1 when the clusters are the
        classes, as with a single class. "nmi" and "f1" are >= 0; "ami" is about 0 by chance, and
        may be negative.

    Raises:
        TypeError: If `labels` are not integers or `embeddings` not floats.
        ValueError: If shapes disagree, an input is empty or not finite, or an option is out of
            range.

    Source:
        Manning, Raghavan, Schuetze. Introduction to information retrieval. 2008, sec. 16.3.
        Vinh, Epps, Bailey. Information theoretic measures for clusterings comparison. JMLR 2010.
        Both with the arithmetic mean of the entropies; scikit-learn before 0.22 used the geometric
        mean for NMI. Song et al. (CVPR 2016) print NMI as I / (2 (H + H)) but compute it as here.

    Example:
        Clusters {0, 1, 2} and {3}, classes {0, 1} and {2, 3}: TP = 1, FP = 2 and FN = 1.

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
    """Normalized mutual information of k-means clusters of the embeddings and the classes.

    This is only the "nmi" of `clustering_scores`. It depends on `seed` and `restarts`; report both
    with it.

    Args, errors and source are those of `clustering_scores`.

    Returns:
        A Python float in [0, 1]; 1 when the clusters are the classes. It is 1 also with a single
        class, where both entropies are 0.

    Example:
        >>> import numpy as np
        >>> line = np.array([[0.0], [0.1], [5.0], [5.1]])
        >>> nmi(line, np.array([7, 7, 9, 9]))
        1.0
    """
    partitions = _clusters_and_classes(embeddings, labels, KMEANS, seed, restarts)
    return _normalized_mutual_information(*partitions)


def clustering_f1(embeddings, labels, *, method=KMEANS, seed=0, restarts=1):
    """Pair F1: agreement of pairs within clusters with pairs within classes.

    This is only the "f1" of `clustering_scores`: the harmonic mean of TP / (TP + FP), the share of
    the pairs within clusters that share a class, and TP / (TP + FN), the share of the pairs within
    classes that share a cluster. Counts are exact. It is neither an F1 of retrieval nor a mean over
    classes.

    Args, errors and source are those of `clustering_scores`.

    Returns:
        A Python float in [0, 1]; 1 when the clusters are the classes, even if no two rows share
        either. A single cluster scores 2 P / (1 + P), with P the share of positive pairs.

    Example:
        One of the three pairs within clusters and one of the two pairs within classes is in both.

        >>> import numpy as np
        >>> line = np.array([[0.0], [0.1], [0.2], [5.0]])
        >>> clustering_f1(line, np.array([7, 7, 9, 9]))
        0.4
    """
    return _pair_f1(*_clusters_and_classes(embeddings, labels, method, seed, restarts))


def _clusters_and_classes(embeddings, labels, method, seed, restarts):
    embeddings, labels = inputs.embeddings_and_labels(embeddings, labels)
    classes = len(np.unique(labels))
    return cluster(embeddings, classes, method=method, seed=seed, restarts=restarts), labels


def _normalized_mutual_information(groups, labels):
    entropies = _entropy(_sizes(groups)) + _entropy(_sizes(labels))
    if entropies == 0:
        return 1.0
    information = entropies - _entropy(_common_sizes(groups, labels))
    return float(np.clip(2 * information / entropies, 0.0, 1.0))


def _adjusted_mutual_information(groups, labels):
    common = len(_common_sizes(groups, labels))
    if common == len(_sizes(groups)) == len(_sizes(labels)):
        return 1.0  # scikit-learn's sums round, and give 0 / 0 if every row is its own class
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
    """The sizes of the non-empty intersections of groups and labels."""
    # Not the full contingency table, which takes a gigabyte for 11,316 classes.
    return contingency_matrix(labels, groups, sparse=True).data


def _entropy(sizes):
    # Sorted, so that the result does not depend on the numbering of the groups.
    shares = np.sort(sizes) / sizes.sum()
    return float(-np.sum(shares * np.log(shares)))
