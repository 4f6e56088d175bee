"""Means of classes, the spread around them, and classification by the nearest."""

import numpy as np

from tfdml.checks import check
from tfdml.evaluation import inputs
from tfdml.evaluation.ranking import rank
from tfdml.quiet import warn


def class_means(embeddings, labels, *, normalize=False):
    """Mean embedding of each class.

    Args:
        embeddings: (n, dim) floats, finite.
        labels: (n,) or (n, 1) integers of any size, one class id per row.
        normalize: Whether the means are scaled to unit length; a mean of 0 stays 0.

    Returns:
        (classes,) class ids, ascending, in the dtype of the labels, and (classes, dim) float64.

    Raises:
        TypeError: If `labels` are not integers or `embeddings` not floats.
        ValueError: If the shapes disagree, an input is empty or not finite.
    """
    embeddings, labels = inputs.embeddings_and_labels(embeddings, labels)
    ids, classes = rows_by_class(labels)
    means = np.empty((len(ids), embeddings.shape[1]))
    for mean, rows in zip(means, classes, strict=True):
        own = embeddings[rows].astype(np.float64)
        exponent = int(np.frexp(np.abs(own).max())[1])  # keeps sums of huge numbers from overflow
        mean[:] = np.ldexp(np.ldexp(own, -exponent).mean(axis=0), exponent)
    return ids, unit_rows(means) if normalize else means


def class_density(embeddings, labels):
    """Mean squared distance of the unit rows of each class to their mean: 0 dense, 1 sparse.

    Arguments and errors are those of `class_means`; rows, of any length, are made unit rows first.

    Returns:
        (classes,) float64 in [0, 1], in the order of the class ids; 0 for a single row.

    Source:
        Li, Yao, Chao, Chen, Mei. Density adaptivity in deep metric learning. 2019, section III.
    """
    embeddings, labels = inputs.embeddings_and_labels(embeddings, labels)
    classes = (unit_rows(embeddings[rows]) for rows in rows_by_class(labels)[1])
    return np.array([np.var(rows, axis=0).sum() for rows in classes])


def nearest_class_mean(
    train_embeddings,
    train_labels,
    test_embeddings,
    test_labels,
    *,
    k=(1, 5),
    renormalize_means=False,
):
    """Top-K accuracy of nearest-class-mean classification.

    With mu_c the mean of the training rows of class c and D the Euclidean distance:

        top-K = share of test rows x, of class y, with fewer than K classes c != y for which
                D(x, mu_c) <= D(x, mu_y)

    So ties count against the row. Errors are those of `class_means`.

    Args:
        train_embeddings, train_labels, test_embeddings, test_labels: As for `class_means`.
        k: Positive integer or several, at most the number of classes with training rows.
        renormalize_means: Whether the means are scaled to unit length, for rows of unit length.

    Returns:
        {K: accuracy} with Python floats in [0, 1], K ascending. A test row of a class without
        training rows is a miss for every K; a warning gives their number.

    Source:
        Mensink, Verbeek, Perronnin, Csurka. Distance-based image classification: generalizing to
        new classes at near-zero cost. PAMI 2013; Huang, Loy, Tang. Local
        similarity-aware deep feature embedding. NIPS 2016, Table 2.
        Differs: no metric is learned on top of the embedding.
    """
    data = train_embeddings, train_labels, test_embeddings, test_labels
    hits = nearest_class_mean_per_query(*data, k=k, renormalize_means=renormalize_means)
    return {int(name[3:]): float(np.mean(hit)) for name, hit in hits.items()}


def nearest_class_mean_per_query(
    train_embeddings, train_labels, test_embeddings, test_labels, k=(1, 5), renormalize_means=False
):
    """{"top1": (n,) values of 0 and 1, ...}, of which `nearest_class_mean` returns the means.

    Arguments and errors are the same.
    """
    train, train_labels = inputs.embeddings_and_labels(train_embeddings, train_labels, "train_")
    test, test_labels = inputs.embeddings_and_labels(test_embeddings, test_labels, "test_")
    inputs.check_alike("dim", train_embeddings=train, test_embeddings=test)
    ids, means = class_means(train, train_labels, normalize=renormalize_means)
    ranks = ranks_of_means(test, test_labels, means, ids)
    unknown = np.count_nonzero(np.isinf(ranks))
    if unknown:
        cause = "are of classes without a training row; they count as misses"
        warn(f"{unknown} of {len(ranks)} test rows {cause}")
    return {f"top{count}": hit for count, hit in hits_by_rank(ranks, k, len(ids)).items()}


def ranks_of_means(embeddings, labels, means, ids):
    """(n,) ranks, from 1 on, of the mean of each row's class; infinity for a class without one."""
    found = rank(embeddings, labels, means, ids, nearest=0, first_only=True).relevant_ranks
    ranks = np.full(len(embeddings), np.inf)
    ranks[found.query] = found.rank
    return ranks


def hits_by_rank(ranks, k, classes, equals=1):
    """{K: (n,) probabilities of a hit}; `equals` means, the last at the rank, have any order."""
    counts = inputs.neighbour_counts(k, np.inf)
    check(counts[-1] <= classes, "`k` must not exceed the number of means", k=k, means=classes)
    return {count: np.clip((count + equals - ranks) / equals, 0.0, 1.0) for count in counts}


def rows_by_class(labels):
    """The class ids, ascending, and for each the numbers of its rows, ascending."""
    order = np.argsort(labels, kind="stable")
    ids, starts = np.unique(labels[order], return_index=True)
    return ids, np.split(order, starts[1:])


def unit_rows(rows):
    """Rows scaled to unit length, in float64; rows of 0 stay 0."""
    rows = rows.astype(np.float64)
    largest = np.abs(rows).max(axis=-1, keepdims=True)  # keeps squares in range
    rows = rows / np.where(largest > 0, largest, 1.0)
    norms = np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows / np.where(norms > 0, norms, 1.0)
