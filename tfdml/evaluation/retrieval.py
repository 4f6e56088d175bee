"""Retrieval scores: relevant rows among the nearest neighbours of each query."""

import itertools

import numpy as np

from tfdml.evaluation import inputs
from tfdml.evaluation.metrics import Metrics
from tfdml.evaluation.ranking import ranking_of

_COUNTS = (1, 2, 4, 8)
_MOST_PAIRS = 2**23  # of queries and relevant rows that are ranked at once: about 200 MB


def retrieval_scores(
    embeddings,
    labels,
    k=_COUNTS,
    *,
    metrics=None,
    gallery_embeddings=None,
    gallery_labels=None,
    groups=None,
    gallery_groups=None,
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
    relevant rows. Ties count as errors: a row of another class at the distance of a relevant row
    ranks before it. All are readings of one `rank`, which says what counts as a tie, and the cost.

    Args:
        embeddings: (n, dim) floats, finite; the queries, taken as given: not normalised.
        labels: (n,) or (n, 1) integers of any size, one class id per query.
        k: Positive integer or several, for the metrics "@K"; at most the gallery size, excluding
            the query itself.
        metrics: Names of metrics, or one, without "@K". Default: all.
        gallery_embeddings: (m, dim) floats searched in. Default: the queries; each query excludes
            itself, by index, but not its duplicates.
        gallery_labels: (m,) or (m, 1) integers; given with `gallery_embeddings`.
        groups: (n,) or (n, 1) integers of any size, such as the camera that took an image. A
            gallery row of the class *and* group of a query is excluded from its ranking.
        gallery_groups: (m,) or (m, 1) integers; given with `groups` and a gallery.
        similarity: Callable of rows (i, dim) and (j, dim), i and j at most 256, that returns their
            (i, j) scores, which replace -D: finite, larger for nearer rows and, without a gallery,
            symmetric. An example is `PDDM.matrix`, in a third of the time by `tf.function`.

    Returns:
        {name: score} with Python floats in [0, 1], in the order of `metrics`, K ascending. A query
        without relevant rows counts as a miss for all; a warning gives their number.

    Raises:
        TypeError: If labels or groups are not integers, embeddings not floats or `similarity` not
            callable.
        ValueError: If shapes disagree, an input is empty, missing or not finite, a metric is
            unknown, `k` is out of range, or `similarity` does not return what it must.

    Source:
        Musgrave, Belongie, Lim. A metric learning reality check. ECCV 2020, section 3.2: map@r and
        r_precision; Song, Xiang, Jegelka, Savarese. Deep metric learning via lifted structured
        feature embedding. CVPR 2016, section 6: recall@K; Manning, Raghavan, Schuetze. Introduction
        to information retrieval. 2008, section 8.4: map, precision@K, ndcg@K with binary gains;
        Voorhees. The TREC-8 question answering track report. TREC 1999: mrr; Zheng et al. Scalable
        person re-identification. ICCV 2015, section 4: groups, as cameras.
        Differs: ties count against the query instead of being broken by sort order.
    """
    search = {"gallery_embeddings": gallery_embeddings, "gallery_labels": gallery_labels}
    search |= {"groups": groups, "gallery_groups": gallery_groups, "similarity": similarity}
    values = retrieval_scores_per_query(embeddings, labels, k, metrics=metrics, **search)
    return {name: float(each.mean()) for name, each in values.items()}


def retrieval_scores_per_query(
    embeddings, labels, k=_COUNTS, *, metrics=None, similarity=None, **search
):
    """Scores of each query, whose means `retrieval_scores` returns; with its arguments and errors.

    Returns:
        {name: (n,) float64 in [0, 1]}, in the order of the queries.
    """
    inputs.check_callable_or_none(similarity=similarity)
    search = inputs.search_of(embeddings, labels, **search)
    return values_of(search, Metrics.of(metrics, k, search.most), similarity)


def recall_at_k(embeddings, labels, k=_COUNTS, **search):
    """Recall@K: share of queries with a row of their class among the K nearest rows.

    This is the "Recall@K" of metric-learning papers (any hit counts, also called CMC@K), not the
    share of relevant rows found. Arguments, errors and source are those of `retrieval_scores`.

    Example:
        >>> import numpy as np
        >>> line = np.array([[0.0], [1.0], [3.0], [3.5]])
        >>> recall_at_k(line, np.array([0, 1, 0, 1]), k=(1, 2, 3))
        {1: 0.0, 2: 0.5, 3: 1.0}
    """
    return _means_at_k(embeddings, labels, k, "recall", **search)


def precision_at_k(embeddings, labels, k=_COUNTS, **search):
    """The "precision@K" of `retrieval_scores`, with its arguments and errors, as {K: score}."""
    return _means_at_k(embeddings, labels, k, "precision", **search)


def ndcg_at_k(embeddings, labels, k=_COUNTS, **search):
    """The "ndcg@K" of `retrieval_scores`, with its arguments and errors, as {K: score}."""
    return _means_at_k(embeddings, labels, k, "ndcg", **search)


def mean_average_precision(embeddings, labels, **search):
    """The "map" of `retrieval_scores`, over all ranks, with its arguments and errors."""
    return retrieval_scores(embeddings, labels, metrics="map", **search)["map"]


def map_at_r(embeddings, labels, **search):
    """The "map@r" of `retrieval_scores`, with its arguments and errors."""
    return retrieval_scores(embeddings, labels, metrics="map@r", **search)["map@r"]


def r_precision(embeddings, labels, **search):
    """The "r_precision" of `retrieval_scores`, with its arguments and errors."""
    return retrieval_scores(embeddings, labels, metrics="r_precision", **search)["r_precision"]


def mean_reciprocal_rank(embeddings, labels, **search):
    """The "mrr" of `retrieval_scores`, with its arguments and errors."""
    return retrieval_scores(embeddings, labels, metrics="mrr", **search)["mrr"]


def _means_at_k(embeddings, labels, k, metric, **search):
    """{K: mean} of a metric "@K"."""
    means = retrieval_scores(embeddings, labels, k, metrics=metric, **search)
    return {int(name.partition("@")[2]): mean for name, mean in means.items()}


def values_of(search, metrics, similarity=None):
    """{name: (q,) values} of the queries of a `Search`, in the order given; warns of misses."""
    relevant, values = search.relevant, {}
    inputs.warn_of_misses(relevant)
    pairs = np.minimum(relevant, 1) if metrics.first_only else relevant
    parts = 1 if similarity else max(1, -(-int(pairs.sum()) // _MOST_PAIRS))
    limits = np.linspace(0, pairs.sum(), parts + 1)[1:]
    ends = [0, *np.searchsorted(np.cumsum(pairs), limits[:-1]).tolist(), len(relevant)]
    given = np.sort(search.kept)
    for part in itertools.starmap(slice, itertools.pairwise(ends)):
        some = search if parts == 1 else search.of(part)
        depth = metrics.depth(relevant[part])
        ranking = ranking_of(some, similarity, depth=depth, first_only=metrics.first_only)
        places = np.searchsorted(given, np.sort(some.kept))
        for name, found in metrics.values(ranking).items():
            values.setdefault(name, np.empty(len(given)))[places] = found
    return values
