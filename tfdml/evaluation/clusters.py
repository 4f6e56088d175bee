"""Clustering of embeddings, without labels."""

import numpy as np
from sklearn.cluster import KMeans

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
    return clusters_of(embeddings, num_clusters, *options(method, seed, restarts))


def options(method, seed, restarts):
    """Returns the options of `cluster`, checked."""
    check_one_of(METHODS, method=method)
    seed = inputs.whole_number(seed, "seed", at_least=0, below=2**32)
    restarts = inputs.whole_number(restarts, "restarts", at_least=1)
    check(
        method == KMEANS or restarts == 1,
        "`restarts` must be 1 for affinity propagation, which has no random start",
        restarts=restarts,
    )
    return method, seed, restarts


def clusters_of(embeddings, num_clusters, method, seed, restarts):
    """`cluster`, for embeddings and options that are already checked."""
    num_clusters = inputs.whole_number(num_clusters, "num_clusters", at_least=1)
    check(
        num_clusters <= len(embeddings),
        "`num_clusters` must not exceed the number of embeddings",
        num_clusters=num_clusters,
        embeddings=len(embeddings),
    )
    if method == AFFINITY_PROPAGATION:
        return affinity_propagation(embeddings, num_clusters, seed)
    kmeans = KMeans(num_clusters, init="k-means++", n_init=restarts, random_state=seed)
    return kmeans.fit_predict(embeddings).astype(np.int64)
