"""Retrieval scores: relevant rows among the nearest neighbours of each query."""

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
    """Ranks the relevant rows of each query in the whole gallery; returns several metrics at once.

    The relevant rows of query q are the R gallery rows of its class, without q itself, which is
    excluded by index. With D[q, j] the Euclidean distance, the i-th nearest relevant row has rank

        p[i] = i + number of j of other classes with D[q, j] <= D[q, i]

    Each metric is an unweighted mean over queries:

        recall@K      1 if p[1] <= K                 "R@K" of metric learning, also called CMC@K
        precision@K   (number of p[i] <= K) / K      at most R / K
        map           1/R * sum of i / p[i]          the mean average precision, over all ranks
        map@r         1/R * sum of i / p[i] over p[i] <= R
        r_precision   (number of p[i] <= R) / R
        mrr           1 / p[1]                       the mean reciprocal rank
        ndcg@K        sum of 1 / log2(p[i] + 1) over p[i] <= K, divided by its largest value,
                      which is the sum of 1 / log2(i + 1) over i <= min(R, K)

    A perfect ranking scores exactly 1 on each, except on precision@K if a query has fewer than K
    relevant rows. Ties count as errors: a row of another class at exactly the distance of a
    relevant row ranks before it, so collapsed embeddings score at most chance level. A query
    without relevant rows scores 0.

    Exact: equal to comparing float64 distances of every pair. Cost is one float32 product of
    queries and gallery, in blocks, and for `map` at worst one sort per query; for n x dim inputs it
    takes about 16 * n * dim bytes on top of the blocks. Distances between many duplicate rows are
    each computed in float64: slow for `map` and `mrr`, which need all of them.

    With `similarity`, its scores S[q, j] replace -D[q, j] in the same definitions;
    `tfdml.evaluation.similarity_ranking` states how often and with which inputs it is called.

    Args:
        embeddings: (n, dim) floats, finite; the queries, taken as given: not normalised.
        labels: (n,) or (n, 1) integers of any size, one class id per query.
        k: Positive integer or several, for the metrics "@K"; at most the gallery size, excluding
            the query itself: n - 1 without a gallery.
        metrics: Names of metrics, or one: "recall", "precision", "map", "map@r", "r_precision",
            "mrr", "ndcg". Default: all. Metrics that need fewer ranks are faster.
        gallery_embeddings: (m, dim) floats searched in. Default: the queries; each query excludes
            itself, by index, but not its duplicates.
        gallery_labels: (m,) or (m, 1) integers; given exactly when `gallery_embeddings` are.
        groups: (n,) or (n, 1) integers of any size, such as the camera that took an image. A
            gallery row of the class *and* group of a query is excluded from its ranking. Rows of
            other classes count whatever their group. Default: no groups.
        gallery_groups: (m,) or (m, 1) integers; given exactly when `groups` and a gallery are.
        ignored_labels: Integers, the ids of classes whose rows are removed from both queries and
            gallery, such as the -1 of wrong detections.
        similarity: Callable of rows (i, dim) and (j, dim), i and j at most 256, that returns their
            (i, j) scores: finite, larger for nearer rows and, without a gallery, symmetric. An
            example is `PDDM.matrix`; wrapped in `tf.function` it takes a third of the time.
            Default: the Euclidean distance.

    Returns:
        {name: score} with Python floats in [0, 1], in the order of `metrics`, K ascending. A query
        without relevant rows counts as a miss for all; a warning gives their number.

    Raises:
        TypeError: If labels or groups are not integers, embeddings not floats or `similarity` not
            callable.
        ValueError: If shapes disagree, an input is empty or not finite, embeddings or labels of the
            gallery are missing, groups are given for a part only, a metric is unknown, or `k` is
            not positive or exceeds the gallery size; or if the scores of `similarity` have a wrong
            shape, are not finite, or, without a gallery, are not symmetric.

    Source:
        Musgrave, Belongie, Lim. A metric learning reality check. ECCV 2020, section 3.2: map@r and
        r_precision; Song, Xiang, Jegelka, Savarese. Deep metric learning via lifted structured
        feature embedding. CVPR 2016, section 6: recall@K; Manning, Raghavan, Schuetze. Introduction
        to information retrieval. 2008, section 8.4: map, precision@K, ndcg@K with binary gains;
        Zheng et al. Scalable person re-identification. ICCV 2015, section 4: groups, as cameras.
        Differs: ties count against the query instead of being broken by sort order.

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
    """Scores of each query, whose means `retrieval_scores` returns.

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
        without relevant rows. Queries of ignored classes have no value: the values are those of the
        rows `~np.isin(labels, ignored_labels)`.

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
    """Recall@K: share of queries with a row of their class among the K nearest rows.

    With D[q, j] the Euclidean distance of query q to gallery row j:

        nearest[q] = min of D[q, j] over j of the class of q, j != q
        rank[q]    = number of j of other classes with D[q, j] <= nearest[q]
        recall@K   = share of queries with rank[q] < K

    This is the "Recall@K" of metric-learning papers (any hit counts, also called CMC@K), not the
    share of relevant rows found. Ties count as errors: a row of another class at exactly the
    distance of the nearest same-class row ranks before it, so collapsed embeddings score 0 (unless
    there are fewer than K rows of other classes). Exact, at the cost of `retrieval_scores`.

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
        class is a miss for every K; a warning gives their number.

    Raises:
        TypeError: As `retrieval_scores`.
        ValueError: As `retrieval_scores`.

    Source:
        Jegou, Douze, Schmid. Product quantization for nearest neighbor search. PAMI 2011, sec. V;
        Song, Xiang, Jegelka, Savarese. Deep metric learning via lifted structured feature
        embedding. CVPR 2016, sec. 6.
        Differs: ties count against the query instead of being broken by sort order.

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

    Warnings refer to the caller of the public function that calls this one.
    """
    metrics = metric_names(metrics)
    inputs.check_similarity(similarity)
    given = embeddings, labels, gallery_embeddings, gallery_labels
    search = search_of(*given, groups, gallery_groups, ignored_labels)
    counts = inputs.neighbour_counts(k, search.most) if set(AT_K).intersection(metrics) else []
    relevant, only_nearest = search.relevant, need_only_nearest(metrics)
    if similarity is None:
        ranked = ranks_by_distance(search, depth_needed(metrics, counts, relevant), only_nearest)
    else:
        ranked = ranks_by_similarity(search, similarity, only_nearest)
    values = {}
    for ranks in ranked:
        block = slice(ranks.first, ranks.last)
        for name, of in metric_values(metrics, counts, ranks, relevant[block]).items():
            values.setdefault(name, np.empty(len(relevant)))[search.order[block]] = of
    inputs.warn_of_misses(int(np.count_nonzero(relevant == 0)), len(relevant), stacklevel=3)
    return values, counts
