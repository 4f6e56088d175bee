"""Retrieval metrics one by one; `retrieval_scores` gives several from one pass."""

import numpy as np

from tfdml.evaluation.retrieval import values_per_query


def precision_at_k(
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
    """Precision@K: share of the K nearest rows that are of the query's class.

        precision@K[q] = (number of relevant rows of q among its K nearest rows) / K

    A query with R < K relevant rows scores at most R / K, so a perfect ranking scores 1 only if
    every query has K relevant rows or more.

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
        {K: score} with Python floats in [0, 1], K ascending; 0 for a query without relevant rows.

    Raises:
        TypeError: As `retrieval_scores`.
        ValueError: As `retrieval_scores`.

    Source:
        Manning, Raghavan, Schuetze. Introduction to information retrieval. 2008, section 8.4.
        Differs: ties count against the query instead of being broken by sort order.

    Example:
        >>> line, labels = np.array([[0.0], [1.0], [3.0], [3.5]]), np.array([0, 1, 0, 1])
        >>> precision_at_k(line, labels, k=2)
        {2: 0.25}
    """
    values, counts = values_per_query(
        embeddings,
        labels,
        k,
        "precision",
        gallery_embeddings,
        gallery_labels,
        groups,
        gallery_groups,
        ignored_labels,
        similarity,
    )
    return {count: float(np.mean(values[f"precision@{count}"])) for count in counts}


def mean_average_precision(
    embeddings,
    labels,
    *,
    gallery_embeddings=None,
    gallery_labels=None,
    groups=None,
    gallery_groups=None,
    ignored_labels=(),
    similarity=None,
):
    """Mean average precision over the ranks of all relevant rows in the whole gallery.

        ap[q] = 1/R * sum over i = 1 .. R of i / p[i]

    with p[i] the rank of the i-th nearest of the R relevant rows of q. The score is the mean of ap
    over queries.

    Args:
        embeddings: As for `retrieval_scores`.
        labels: As for `retrieval_scores`.
        gallery_embeddings: As for `retrieval_scores`.
        gallery_labels: As for `retrieval_scores`.
        groups: As for `retrieval_scores`.
        gallery_groups: As for `retrieval_scores`.
        ignored_labels: As for `retrieval_scores`.
        similarity: As for `retrieval_scores`.

    Returns:
        A Python float in [0, 1]; a query without relevant rows scores 0.

    Raises:
        TypeError: As `retrieval_scores`.
        ValueError: As `retrieval_scores`.

    Source:
        Manning, Raghavan, Schuetze. Introduction to information retrieval. 2008, section 8.4.
        Differs: ties count against the query instead of being broken by sort order.

    Example:
        >>> line, labels = np.array([[0.0], [1.0], [3.0], [3.5]]), np.array([0, 1, 0, 1])
        >>> round(mean_average_precision(line, labels), 4)
        0.4167
    """
    values, _ = values_per_query(
        embeddings,
        labels,
        (),
        "map",
        gallery_embeddings,
        gallery_labels,
        groups,
        gallery_groups,
        ignored_labels,
        similarity,
    )
    return float(np.mean(values["map"]))


def map_at_r(
    embeddings,
    labels,
    *,
    gallery_embeddings=None,
    gallery_labels=None,
    groups=None,
    gallery_groups=None,
    ignored_labels=(),
    similarity=None,
):
    """MAP@R: mean average precision over the R nearest rows of each query.

        map@r[q] = 1/R * sum over p[i] <= R of i / p[i]

    with p[i] the rank of the i-th nearest of the R relevant rows of q: the sum of the precision at
    each of the first R ranks that holds a relevant row, divided by R. At most `r_precision`.

    Args:
        embeddings: As for `retrieval_scores`.
        labels: As for `retrieval_scores`.
        gallery_embeddings: As for `retrieval_scores`.
        gallery_labels: As for `retrieval_scores`.
        groups: As for `retrieval_scores`.
        gallery_groups: As for `retrieval_scores`.
        ignored_labels: As for `retrieval_scores`.
        similarity: As for `retrieval_scores`.

    Returns:
        A Python float in [0, 1]; a query without relevant rows scores 0.

    Raises:
        TypeError: As `retrieval_scores`.
        ValueError: As `retrieval_scores`.

    Source:
        Musgrave, Belongie, Lim. A metric learning reality check. ECCV 2020, section 3.2.
        Differs: ties count against the query instead of being broken by sort order.

    Example:
        >>> line, labels = np.array([[0.0], [1.0], [3.0], [3.5]]), np.array([0, 1, 0, 1])
        >>> map_at_r(line, labels)
        0.0
    """
    values, _ = values_per_query(
        embeddings,
        labels,
        (),
        "map@r",
        gallery_embeddings,
        gallery_labels,
        groups,
        gallery_groups,
        ignored_labels,
        similarity,
    )
    return float(np.mean(values["map@r"]))


def r_precision(
    embeddings,
    labels,
    *,
    gallery_embeddings=None,
    gallery_labels=None,
    groups=None,
    gallery_groups=None,
    ignored_labels=(),
    similarity=None,
):
    """R-precision: share of the R nearest rows that are of the query's class.

        r_precision[q] = (number of relevant rows of q among its R nearest rows) / R

    with R the number of relevant rows of q. The score is the mean over queries.

    Args:
        embeddings: As for `retrieval_scores`.
        labels: As for `retrieval_scores`.
        gallery_embeddings: As for `retrieval_scores`.
        gallery_labels: As for `retrieval_scores`.
        groups: As for `retrieval_scores`.
        gallery_groups: As for `retrieval_scores`.
        ignored_labels: As for `retrieval_scores`.
        similarity: As for `retrieval_scores`.

    Returns:
        A Python float in [0, 1]; a query without relevant rows scores 0.

    Raises:
        TypeError: As `retrieval_scores`.
        ValueError: As `retrieval_scores`.

    Source:
        Musgrave, Belongie, Lim. A metric learning reality check. ECCV 2020, section 3.2.
        Differs: ties count against the query instead of being broken by sort order.

    Example:
        >>> line, labels = np.array([[0.0], [1.0], [3.0], [3.5]]), np.array([0, 1, 0, 1])
        >>> r_precision(line, labels)
        0.0
    """
    values, _ = values_per_query(
        embeddings,
        labels,
        (),
        "r_precision",
        gallery_embeddings,
        gallery_labels,
        groups,
        gallery_groups,
        ignored_labels,
        similarity,
    )
    return float(np.mean(values["r_precision"]))


def mean_reciprocal_rank(
    embeddings,
    labels,
    *,
    gallery_embeddings=None,
    gallery_labels=None,
    groups=None,
    gallery_groups=None,
    ignored_labels=(),
    similarity=None,
):
    """Mean reciprocal rank of the nearest relevant row.

        mrr[q] = 1 / p[1]

    with p[1] the rank of the nearest relevant row of q in the whole gallery.

    Args:
        embeddings: As for `retrieval_scores`.
        labels: As for `retrieval_scores`.
        gallery_embeddings: As for `retrieval_scores`.
        gallery_labels: As for `retrieval_scores`.
        groups: As for `retrieval_scores`.
        gallery_groups: As for `retrieval_scores`.
        ignored_labels: As for `retrieval_scores`.
        similarity: As for `retrieval_scores`.

    Returns:
        A Python float in [0, 1]; a query without relevant rows scores 0.

    Raises:
        TypeError: As `retrieval_scores`.
        ValueError: As `retrieval_scores`.

    Source:
        Voorhees. The TREC-8 question answering track report. TREC 1999.
        Differs: ties count against the query instead of being broken by sort order.

    Example:
        >>> line, labels = np.array([[0.0], [1.0], [3.0], [3.5]]), np.array([0, 1, 0, 1])
        >>> round(mean_reciprocal_rank(line, labels), 4)
        0.4167
    """
    values, _ = values_per_query(
        embeddings,
        labels,
        (),
        "mrr",
        gallery_embeddings,
        gallery_labels,
        groups,
        gallery_groups,
        ignored_labels,
        similarity,
    )
    return float(np.mean(values["mrr"]))


def ndcg_at_k(
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
    """Normalized discounted cumulative gain of the K nearest rows.

        dcg@K[q] = sum over p[i] <= K of 1 / log2(p[i] + 1)
        ndcg@K[q] = dcg@K[q] / (sum over i = 1 .. min(R, K) of 1 / log2(i + 1))

    with p[i] the rank of the i-th nearest of the R relevant rows of q: binary gains.

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
        {K: score} with Python floats in [0, 1], K ascending; 0 for a query without relevant rows.

    Raises:
        TypeError: As `retrieval_scores`.
        ValueError: As `retrieval_scores`.

    Source:
        Jarvelin, Kekalainen. Cumulated gain-based evaluation of IR techniques. TOIS 2002.
        Differs: ties count against the query instead of being broken by sort order.

    Example:
        >>> line, labels = np.array([[0.0], [1.0], [3.0], [3.5]]), np.array([0, 1, 0, 1])
        >>> round(ndcg_at_k(line, labels, k=2)[2], 4)
        0.3155
    """
    values, counts = values_per_query(
        embeddings,
        labels,
        k,
        "ndcg",
        gallery_embeddings,
        gallery_labels,
        groups,
        gallery_groups,
        ignored_labels,
        similarity,
    )
    return {count: float(np.mean(values[f"ndcg@{count}"])) for count in counts}
