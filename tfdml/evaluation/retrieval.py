"""Retrieval scores: what a query finds among its nearest neighbours."""

import numpy as np

from tfdml.evaluation import inputs
from tfdml.evaluation.distance_ranking import ranks_by_distance
from tfdml.evaluation.mates import search_of
from tfdml.evaluation.rank_metrics import (
    AT_K,
    depth_needed,
    metric_names,
    metric_values,
    need_only_nearest,
)
from tfdml.evaluation.similarity_ranking import ranks_by_similarity


def retrieval_scores(
    embeddings,
    labels,
    k=(1, 2, 4, 8),
    *,
    metrics=None,
    gallery_embeddings=None,
    gallery_labels=None,
    groups=None,
    gallery_groups=None,
    ignored_labels=(),
    similarity=None,
):
    """Tells how high the mates of each query rank in the whole gallery, by several metrics at once.

    The mates of query q are the R gallery rows of its class, without q itself, which is left out by
    index. With D[q, j] the Euclidean distance, the mate at place i of them, from the nearest on,
    has the rank

        p[i] = i + number of j of other classes with D[q, j] <= D[q, i]

    Each metric is a mean over queries, all of them weighing the same:

        recall@K      1 if p[1] <= K                 "R@K" of metric learning, also called CMC@K
        precision@K   (number of p[i] <= K) / K      at most R / K
        map           1/R * sum of i / p[i]          the mean average precision, over all ranks
        map@r         1/R * sum of i / p[i] over p[i] <= R
        r_precision   (number of p[i] <= R) / R
        mrr           1 / p[1]                       the mean reciprocal rank
        ndcg@K        sum of 1 / log2(p[i] + 1) over p[i] <= K, divided by its largest value,
                      which is the sum of 1 / log2(i + 1) over i <= min(R, K)

    A perfect ranking scores exactly 1 by each, but by precision@K where a query has fewer than K
    mates. Ties never help: a row of another class at exactly the distance of a mate ranks before
    it. So collapsed embeddings score at most what chance would. A query without mates scores 0.

    Exact: equal to comparing float64 distances of every pair. Cost is one float32 product of
    queries and gallery, in blocks, and for `map` at worst one sort per query; for n x dim inputs it
    takes about 16 * n * dim bytes on top of the blocks. Where many rows are equal to others, their
    distances are taken in float64, each: slow for `map` and `mrr`, which need all of them.

    With `similarity` its scores S[q, j] take the place of -D[q, j], and the same definitions hold;
    `tfdml.evaluation.similarity_ranking` says how often it is called and with what.

    Args:
        embeddings: (n, dim) floats, finite; the queries, taken as given: not normalised.
        labels: (n,) or (n, 1) integers of any size, one class id per query.
        k: Positive integer or several, of the metrics "@K"; at most the gallery size. The query
            itself is not counted: without a gallery the most is n - 1.
        metrics: Names of metrics, or one: "recall", "precision", "map", "map@r", "r_precision",
            "mrr", "ndcg". Default: all. The fewer ranks they need, the faster.
        gallery_embeddings: (m, dim) floats searched in. Default: the queries, of which each one
            leaves out itself, by index; duplicates of it stay.
        gallery_labels: (m,) or (m, 1) integers; given exactly when `gallery_embeddings` are.
        groups: (n,) or (n, 1) integers of any size, such as the camera that took an image. A
            gallery row of the class *and* group of a query is neither hit nor miss for it: it takes
            no rank. Rows of other classes count whatever their group. Default: no groups.
        gallery_groups: (m,) or (m, 1) integers; given exactly when `groups` and a gallery are.
        ignored_labels: Integers, the ids of classes whose rows are no queries and stand in no
            gallery, such as the -1 of wrong detections.
        similarity: Callable of rows (i, dim) and (j, dim), i and j at most 256, that returns their
            (i, j) scores: finite, the larger the nearer, and without a gallery symmetric. An
            example is `PDDM.matrix`; wrapped in `tf.function` it takes a third of the time.
            Default: the Euclidean distance.

    Returns:
        {name: score} with Python floats in [0, 1], in the order of `metrics`, K ascending. A query
        without mates counts as a miss for all; a warning says how many there are.

    Raises:
        TypeError: If labels or groups are not integers, embeddings not floats or `similarity` no
            callable.
        ValueError: If shapes disagree, an input is empty or not finite, only half a gallery is
            given, groups are given for a part only, a metric is unknown, or `k` is not positive or
            exceeds the gallery size; or if the scores of `similarity` have a wrong shape, are not
            finite, or not symmetric without a gallery.

    Source:
        Musgrave, Belongie, Lim. A metric learning reality check. ECCV 2020, section 3.2: map@r and
        r_precision; Song, Xiang, Jegelka, Savarese. Deep metric learning via lifted structured
        feature embedding. CVPR 2016, section 6: recall@K; Manning, Raghavan, Schuetze. Introduction
        to information retrieval. 2008, section 8.4: map, precision@K, ndcg@K with binary gains;
        Zheng et al. Scalable person re-identification. ICCV 2015, section 4: groups, as cameras.
        Differs: ties count against the query instead of falling as the sort leaves them.

    Example:
        >>> line, labels = np.array([[0.0], [1.0], [3.0], [3.5]]), np.array([0, 1, 0, 1])
        >>> retrieval_scores(line, labels, k=2, metrics=("recall", "precision", "map@r"))
        {'recall@2': 0.5, 'precision@2': 0.25, 'map@r': 0.0}
    """
    values, _ = values_per_query(
        embeddings,
        labels,
        k,
        metrics,
        gallery_embeddings,
        gallery_labels,
        groups,
        gallery_groups,
        ignored_labels,
        similarity,
    )
    return {name: float(np.mean(of)) for name, of in values.items()}


def retrieval_scores_per_query(
    embeddings,
    labels,
    k=(1, 2, 4, 8),
    *,
    metrics=None,
    gallery_embeddings=None,
    gallery_labels=None,
    groups=None,
    gallery_groups=None,
    ignored_labels=(),
    similarity=None,
):
    """Gives the scores of each query, of which `retrieval_scores` is the mean.

    Args:
        embeddings: As for `retrieval_scores`.
        labels: As for `retrieval_scores`.
        k: As for `retrieval_scores`.
        metrics: As for `retrieval_scores`.
        gallery_embeddings: As for `retrieval_scores`.
        gallery_labels: As for `retrieval_scores`.
        groups: As for `retrieval_scores`.
        gallery_groups: As for `retrieval_scores`.
        ignored_labels: As for `retrieval_scores`.
        similarity: As for `retrieval_scores`.

    Returns:
        {name: (n,) float64 in [0, 1]}, one value per query in the order given; 0 for a query
        without mates. Queries of ignored classes have no value: the values are those of the rows
        `~np.isin(labels, ignored_labels)`.

    Raises:
        TypeError: As `retrieval_scores`.
        ValueError: As `retrieval_scores`.

    Example:
        >>> line, labels = np.array([[0.0], [1.0], [3.0], [3.5]]), np.array([0, 1, 0, 1])
        >>> retrieval_scores_per_query(line, labels, k=2, metrics="recall")
        {'recall@2': array([1., 0., 0., 1.])}
    """
    values, _ = values_per_query(
        embeddings,
        labels,
        k,
        metrics,
        gallery_embeddings,
        gallery_labels,
        groups,
        gallery_groups,
        ignored_labels,
        similarity,
    )
    return values


def recall_at_k(
    embeddings,
    labels,
    k=(1, 2, 4, 8),
    *,
    gallery_embeddings=None,
    gallery_labels=None,
    groups=None,
    gallery_groups=None,
    ignored_labels=(),
    similarity=None,
):
    """Tells how often a row of the query's class is among its K nearest rows.

    With D[q, j] the Euclidean distance of query q to gallery row j:

        nearest[q] = min of D[q, j] over j of the class of q, j != q
        rank[q]    = number of j of other classes with D[q, j] <= nearest[q]
        recall@K   = share of queries with rank[q] < K

    This is the "Recall@K" of metric-learning papers (any hit counts, also called CMC@K), not the
    share of relevant rows found. Ties never help: a row of another class at exactly the distance of
    the nearest same-class row ranks before it, so collapsed embeddings score 0 (unless no K rows
    of other classes exist). Exact, at the cost that `retrieval_scores` states.

    Args:
        embeddings: As for `retrieval_scores`.
        labels: As for `retrieval_scores`.
        k: As for `retrieval_scores`.
        gallery_embeddings: As for `retrieval_scores`.
        gallery_labels: As for `retrieval_scores`.
        groups: As for `retrieval_scores`.
        gallery_groups: As for `retrieval_scores`.
        ignored_labels: As for `retrieval_scores`.
        similarity: As for `retrieval_scores`.

    Returns:
        {K: recall} with Python floats in [0, 1], K ascending. A query without another row of its
        class is a miss for every K; a warning says how many there are.

    Raises:
        TypeError: As `retrieval_scores`.
        ValueError: As `retrieval_scores`.

    Source:
        Jegou, Douze, Schmid. Product quantization for nearest neighbor search. PAMI 2011, sec. V;
        Song, Xiang, Jegelka, Savarese. Deep metric learning via lifted structured feature
        embedding. CVPR 2016, sec. 6.
        Differs: ties count against the query instead of falling as the sort leaves them.

    Example:
        >>> import numpy as np
        >>> line = np.array([[0.0], [1.0], [3.0], [3.5]])
        >>> recall_at_k(line, np.array([0, 1, 0, 1]), k=(1, 2, 3))
        {1: 0.0, 2: 0.5, 3: 1.0}
    """
    values, counts = values_per_query(
        embeddings,
        labels,
        k,
        "recall",
        gallery_embeddings,
        gallery_labels,
        groups,
        gallery_groups,
        ignored_labels,
        similarity,
    )
    return {count: float(np.mean(values[f"recall@{count}"])) for count in counts}


def values_per_query(
    embeddings,
    labels,
    k,
    metrics,
    gallery_embeddings,
    gallery_labels,
    groups,
    gallery_groups,
    ignored_labels,
    similarity,
):
    """The result of `retrieval_scores_per_query`, and the numbers K, ascending.

    Warnings point at the caller of the function that calls this one.
    """
    metrics = metric_names(metrics)
    inputs.check_similarity(similarity)
    given = embeddings, labels, gallery_embeddings, gallery_labels
    search = search_of(*given, groups, gallery_groups, ignored_labels)
    counts = inputs.neighbour_counts(k, search.most) if set(AT_K).intersection(metrics) else []
    mates, only_nearest = search.mates, need_only_nearest(metrics)
    if similarity is None:
        ranked = ranks_by_distance(search, depth_needed(metrics, counts, mates), only_nearest)
    else:
        ranked = ranks_by_similarity(search, similarity, only_nearest)
    values = {}
    for ranks in ranked:
        block = slice(ranks.first, ranks.last)
        for name, of in metric_values(metrics, counts, ranks, mates[block]).items():
            values.setdefault(name, np.empty(len(mates)))[search.order[block]] = of
    inputs.warn_of_lonely(int(np.count_nonzero(mates == 0)), len(mates), stacklevel=3)
    return values, counts
