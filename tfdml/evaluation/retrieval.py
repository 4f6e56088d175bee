"""Retrieval scores: relevant rows among the nearest neighbours of each query."""

from __future__ import annotations

import collections
import functools
import inspect
import itertools
from typing import TYPE_CHECKING, TypedDict, TypeVar, cast

import numpy as np

from tfdml.evaluation import inputs
from tfdml.evaluation.metrics import Metrics
from tfdml.evaluation.queries import search_of
from tfdml.evaluation.ranking import ranking_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike
    from typing_extensions import Unpack

_COUNTS = (1, 2, 4, 8)
_MOST_PAIRS = 2**23  # of queries and relevant rows that are ranked at once: about 200 MB
_Function = TypeVar("_Function", bound="Callable")


class Keywords(TypedDict, total=False):
    """Keywords that all functions take; `retrieval_scores` says what they are."""

    gallery_embeddings: ArrayLike | None
    gallery_labels: ArrayLike | None
    groups: ArrayLike | None
    gallery_groups: ArrayLike | None
    ignored_labels: ArrayLike
    similarity: Callable | None


def _with_keywords(function: _Function) -> _Function:
    """Spells out the keywords in the signature of a function, and rejects others by its name."""
    signature, keywords = inspect.signature(function), inspect.Parameter.KEYWORD_ONLY
    defaults = dict.fromkeys(Keywords.__annotations__) | {"ignored_labels": ()}
    more = [inspect.Parameter(name, keywords, default=each) for name, each in defaults.items()]
    *given, _ = signature.parameters.values()
    signature = signature.replace(parameters=[*given, *more])

    @functools.wraps(function)
    def checked(*args, **kwargs):
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{function.__name__}() {error}") from None
        return function(*args, **kwargs)

    checked.__dict__["__signature__"] = signature
    return cast("_Function", checked)


@_with_keywords
def retrieval_scores(embeddings, labels, k=_COUNTS, *, metrics=None, **search: Unpack[Keywords]):
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
    relevant row ranks before it, so collapsed embeddings score at most chance level. All are
    readings of one `rank`, which says what counts as a tie, and the cost.

    Args:
        embeddings: (n, dim) floats, finite; the queries, taken as given: not normalised.
        labels: (n,) or (n, 1) integers of any size, one class id per query.
        k: Positive integer or several, for the metrics "@K"; at most the gallery size, excluding
            the query itself.
        metrics: Names of metrics, or one, without "@K". Default: all. Metrics that need fewer
            ranks are faster.
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
            (i, j) scores, which replace -D: finite, larger for nearer rows and, without a gallery,
            symmetric, as one score serves both rows of a pair. An example is `PDDM.matrix`; wrapped
            in `tf.function` it takes a third of the time. Default: the Euclidean distance.

    Returns:
        {name: score} with Python floats in [0, 1], in the order of `metrics`, K ascending. A query
        without relevant rows counts as a miss for all; a warning gives their number.

    Raises:
        TypeError: If labels or groups are not integers, embeddings not floats or `similarity` not
            callable.
        ValueError: If shapes disagree, an input is empty or not finite, a part of the gallery or of
            the groups is missing, a metric is unknown, `k` is out of range, or `similarity` does
            not return what it must.

    Source:
        Musgrave, Belongie, Lim. A metric learning reality check. ECCV 2020, section 3.2: map@r and
        r_precision; Song, Xiang, Jegelka, Savarese. Deep metric learning via lifted structured
        feature embedding. CVPR 2016, section 6: recall@K; Manning, Raghavan, Schuetze. Introduction
        to information retrieval. 2008, section 8.4: map, precision@K, ndcg@K with binary gains;
        Voorhees. The TREC-8 question answering track report. TREC 1999: mrr; Zheng et al. Scalable
        person re-identification. ICCV 2015, section 4: groups, as cameras.
        Differs: ties count against the query instead of being broken by sort order.
    """
    found, asked, similarity = _checked(embeddings, labels, k, metrics, **search)
    totals = collections.defaultdict(float)
    for _, ranking in _rankings(found, asked, similarity):
        for name, values in asked.read(ranking):
            totals[name] += float(values.sum())
    return {name: total / len(found.kept) for name, total in totals.items()}


@_with_keywords
def retrieval_scores_per_query(
    embeddings, labels, k=_COUNTS, *, metrics=None, **search: Unpack[Keywords]
):
    """Scores of each query, whose means `retrieval_scores` returns; with its arguments and errors.

    Returns:
        {name: (n,) float64 in [0, 1]}, one value per query in the order given; 0 for a query
        without relevant rows. Queries of ignored classes have no value: the values are those of the
        rows `~np.isin(labels, ignored_labels)`.
    """
    return values_of(*_checked(embeddings, labels, k, metrics, **search))


@_with_keywords
def recall_at_k(embeddings, labels, k=_COUNTS, **search: Unpack[Keywords]):
    """Recall@K: share of queries with a row of their class among the K nearest rows.

    This is the "Recall@K" of metric-learning papers (any hit counts, also called CMC@K), not the
    share of relevant rows found. Arguments, errors and source are those of `retrieval_scores`.

    Returns:
        {K: recall} with Python floats in [0, 1], K ascending.

    Example:
        >>> import numpy as np
        >>> line = np.array([[0.0], [1.0], [3.0], [3.5]])
        >>> recall_at_k(line, np.array([0, 1, 0, 1]), k=(1, 2, 3))
        {1: 0.0, 2: 0.5, 3: 1.0}
    """
    return _means_at_k(embeddings, labels, k, "recall", **search)


@_with_keywords
def precision_at_k(embeddings, labels, k=_COUNTS, **search: Unpack[Keywords]):
    """Precision@K: share of the K nearest rows that are of the query's class; at most R / K.

    Arguments, errors and source are those of `retrieval_scores`.

    Returns:
        {K: score} with Python floats in [0, 1], K ascending; 0 for a query without relevant rows.
    """
    return _means_at_k(embeddings, labels, k, "precision", **search)


@_with_keywords
def mean_average_precision(embeddings, labels, **search: Unpack[Keywords]):
    """Mean average precision over all ranks, the "map" of `retrieval_scores`, a Python float.

    Arguments, errors and source are those of `retrieval_scores`.
    """
    return retrieval_scores(embeddings, labels, metrics="map", **search)["map"]


@_with_keywords
def map_at_r(embeddings, labels, **search: Unpack[Keywords]):
    """MAP@R, the mean average precision at R: the "map@r" of `retrieval_scores`, a Python float.

    Arguments, errors and source are those of `retrieval_scores`.
    """
    return retrieval_scores(embeddings, labels, metrics="map@r", **search)["map@r"]


@_with_keywords
def r_precision(embeddings, labels, **search: Unpack[Keywords]):
    """R-precision, the share of relevant rows among the R nearest, a Python float.

    Arguments, errors and source are those of `retrieval_scores`.
    """
    return retrieval_scores(embeddings, labels, metrics="r_precision", **search)["r_precision"]


@_with_keywords
def mean_reciprocal_rank(embeddings, labels, **search: Unpack[Keywords]):
    """Mean of 1 / rank of the nearest relevant row, a Python float.

    Arguments, errors and source are those of `retrieval_scores`.
    """
    return retrieval_scores(embeddings, labels, metrics="mrr", **search)["mrr"]


@_with_keywords
def ndcg_at_k(embeddings, labels, k=_COUNTS, **search: Unpack[Keywords]):
    """Normalized discounted cumulative gain of the K nearest rows, with binary gains.

    Arguments, errors and source are those of `retrieval_scores`.

    Returns:
        {K: score} with Python floats in [0, 1], K ascending; 0 for a query without relevant rows.
    """
    return _means_at_k(embeddings, labels, k, "ndcg", **search)


def _means_at_k(embeddings, labels, k, metric, **search):
    """{K: mean} of a metric "@K"."""
    means = retrieval_scores(embeddings, labels, k, metrics=metric, **search)
    return {int(name.partition("@")[2]): mean for name, mean in means.items()}


def values_of(search, metrics, similarity=None):
    """{name: (q,) values} of the queries of a `Search`, in the order given; warns of misses."""
    values = {}
    for places, ranking in _rankings(search, metrics, similarity):
        for name, part in metrics.read(ranking):
            values.setdefault(name, np.empty(len(search.kept)))[places] = part
    return values


def _rankings(search, metrics, similarity):
    """Yields places in the order given and their `Ranking`, in parts if relevant rows are many."""
    relevant = search.relevant
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
        yield np.searchsorted(given, np.sort(some.kept)), ranking


def _checked(embeddings, labels, k, metrics, *, similarity=None, **search):
    inputs.check_callable_or_none(similarity=similarity)
    search = search_of(embeddings, labels, **search)
    return search, Metrics.of(metrics, k, search.most), similarity
