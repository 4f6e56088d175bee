"""Clusters of embeddings, and how they agree with the classes."""

import warnings

import numpy as np
from scipy.spatial.distance import pdist, squareform
from sklearn.cluster import AffinityPropagation, KMeans
from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score
from sklearn.metrics.cluster import pair_confusion_matrix

from tfdml.checks import check, check_one_of
from tfdml.evaluation import inputs
from tfdml.quiet import warn

MOST_ROWS = 10_000  # of affinity propagation, whose messages then take about 5 GB


def cluster(embeddings, num_clusters, *, method="kmeans", seed=0, restarts=1):
    """Clusters embeddings by Euclidean distance, without labels, by scikit-learn.

    The `preference` of affinity propagation, of similarities -D**2, is bisected by logarithm, at
    most 20 times, until there are `num_clusters`; otherwise it warns and returns the nearest number
    found. It takes about 48 * n**2 bytes (1.7 GB for 5,924 rows).

    Args:
        embeddings: (n, dim) floats, finite; taken as given: not normalised.
        num_clusters: Integer from 1 to n.
        method: "kmeans", or "affinity_propagation" for at most 10,000 rows.
        seed: Integer >= 0 and below 2**32.
        restarts: Number of k-means restarts, >= 1, the best of which is kept.

    Returns:
        (n,) int64, the cluster of every row, numbered from 0; of k-means at most as many as there
        are different rows.

    Raises:
        TypeError, ValueError: As for `class_means`, or if an option is out of range.

    Source:
        Arthur, Vassilvitskii. k-means++: the advantages of careful seeding. SODA 2007.
        Frey, Dueck. Clustering by passing messages between data points. Science 2007.
        Song et al. Deep metric learning via lifted structured feature embedding. CVPR 2016, sec. 5
        (affinity propagation with bisection; the code released with it runs k-means).
        Differs: the authors' bisection stops within 10 % of the number instead of at the nearest.
    """
    embeddings = inputs.finite_rows(embeddings)
    check_one_of(("kmeans", "affinity_propagation"), method=method)
    seed = inputs.whole_number(seed, "seed", at_least=0, below=2**32)
    restarts = inputs.whole_number(restarts, "restarts", at_least=1)
    expectation = "`restarts` must be 1 for affinity propagation, which has no random start"
    check(method == "kmeans" or restarts == 1, expectation, restarts=restarts)
    limits = {"at_least": 1, "below": len(embeddings) + 1}
    num_clusters = inputs.whole_number(num_clusters, "num_clusters", **limits)
    if method == "affinity_propagation":
        return _affinity_propagation(embeddings, num_clusters, seed)
    kmeans = KMeans(num_clusters, init="k-means++", n_init=restarts, random_state=seed)
    return kmeans.fit_predict(embeddings).astype(np.int64)


def clustering_scores(embeddings, labels, *, method="kmeans", seed=0, restarts=1):
    """NMI, AMI and pair F1 of the clusters of `cluster`, as many as there are classes.

    With Omega the clusters, C the classes, I their mutual information, H the entropy, E the mean
    over all clusterings of the same sizes, TP the pairs of rows that share a cluster and a class,
    FP those that share a cluster only, and FN those that share a class only:

        nmi = 2 * I(Omega, C) / (H(Omega) + H(C))
        ami = (I(Omega, C) - E[I]) / ((H(Omega) + H(C)) / 2 - E[I])
        f1 = 2 * TP / (2 * TP + FP + FN)

    NMI rises with the number of clusters by chance alone: random clusters of 60,502 rows, 11,316
    clusters and as many classes, score 0.81. AMI does not; its cost grows with clusters * classes.
    `labels` are as for `class_means`, other arguments and errors as for `cluster`.

    Returns:
        {"nmi", "ami", "f1"}, Python floats: exactly 1 when the clusters are the classes.

    Source:
        Manning, Raghavan, Schuetze. Introduction to information retrieval. 2008, sec. 16.3.
        Vinh, Epps, Bailey. Information theoretic measures for clusterings comparison. JMLR 2010.
        Differs: Song et al. (CVPR 2016) print NMI as I / (2 (H + H)), but compute it as here.
    """
    return _scores(embeddings, labels, ("nmi", "ami", "f1"), method, seed, restarts)


def nmi(embeddings, labels, *, seed=0, restarts=1):
    """Only the "nmi" of `clustering_scores`, of k-means, with its arguments and errors."""
    return _scores(embeddings, labels, ["nmi"], "kmeans", seed, restarts)["nmi"]


def clustering_f1(embeddings, labels, *, method="kmeans", seed=0, restarts=1):
    """Only the "f1" of `clustering_scores`, of pairs, with its arguments and errors."""
    return _scores(embeddings, labels, ["f1"], method, seed, restarts)["f1"]


def _scores(embeddings, labels, names, method, seed, restarts):
    embeddings, labels = inputs.embeddings_and_labels(embeddings, labels)
    classes = len(np.unique(labels))
    clusters = cluster(embeddings, classes, method=method, seed=seed, restarts=restarts)
    (_, only_cluster), (only_class, both) = pair_confusion_matrix(labels, clusters).tolist()
    if only_cluster == only_class == 0:
        return dict.fromkeys(names, 1.0)  # which the sums of logarithms may miss by rounding
    f1 = 2 * both / (2 * both + only_cluster + only_class)
    scores = {"nmi": normalized_mutual_info_score, "ami": adjusted_mutual_info_score}
    return {name: scores[name](labels, clusters) if name in scores else f1 for name in names}


def _affinity_propagation(embeddings, num_clusters, seed):
    rows = len(embeddings)
    expectation = f"affinity propagation takes at most {MOST_ROWS} rows; `method='kmeans'` more"
    check(rows <= MOST_ROWS, expectation, rows=rows)
    exponent = np.frexp(np.abs(embeddings).max())[1]  # squares neither overflow nor underflow
    scaled = np.ldexp(embeddings.astype(np.float64), -exponent)
    similarities = -squareform(pdist(scaled, "sqeuclidean"))
    if similarities.any() and num_clusters == rows:
        return np.arange(rows)
    nearest = np.zeros(rows, np.int64)
    if similarities.any() and num_clusters > 1:
        # With less damping some runs oscillate for ever; 15 iterations are too few for so much.
        options = {"damping": 0.9, "max_iter": 1000, "convergence_iter": 100, "random_state": seed}
        engine = AffinityPropagation(affinity="precomputed", **options)
        # One exemplar is best if a second costs more than all distances to the first; each row is
        # its own exemplar if it prefers itself to the nearest other row.
        few = np.log(-similarities.sum(axis=0).max())
        many = np.log(-similarities[similarities < 0].max() / 2)
        for _ in range(20):
            middle = (few + many) / 2
            engine.preference = -np.exp(middle)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a run that still oscillates has clusters too
                clusters = engine.fit_predict(similarities).astype(np.int64)
            count = clusters.max() + 1  # 0 if no row became an exemplar: all ids are -1
            nearest = min(nearest, clusters, key=lambda ids: abs(ids.max() + 1 - num_clusters))
            if count == num_clusters:
                break
            few, many = (middle, many) if count < num_clusters else (few, middle)
    count = nearest.max() + 1
    if count != num_clusters:
        message = f"affinity propagation found {count} instead of {num_clusters} clusters"
        warn(f"{message}, the nearest number for any preference tried")
    return nearest
