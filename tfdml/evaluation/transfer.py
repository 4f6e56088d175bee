"""Nearest-class-mean classification of new classes, without training."""

import warnings

import numpy as np

from tfdml.checks import check
from tfdml.evaluation import inputs
from tfdml.evaluation.ranking.means import hits, rank_means


def class_means(embeddings, labels, *, normalize=False):
    """Mean embedding of each class.

    Args:
        embeddings: (n, dim) floats, finite.
        labels: (n,) or (n, 1) integers of any size, one class id per row.
        normalize: Whether the means are scaled to unit length; a mean of 0 stays 0.

    Returns:
        `(ids, means)`: (classes,) class ids, ascending, in the dtype of the labels, and
        (classes, dim) float64.

    Raises:
        TypeError: If `labels` are not integers or `embeddings` not floats.
        ValueError: If the shapes disagree, an input is empty or not finite.

    Example:
        >>> ids, means = class_means(np.array([[0.0, 4.0], [3.0, 0.0], [9.0, 8.0]]), [5, 7, 7])
        >>> ids.tolist(), means.tolist()
        ([5, 7], [[0.0, 4.0], [6.0, 4.0]])
    """
    embeddings, labels = inputs.embeddings_and_labels(embeddings, labels)
    return _means(embeddings, labels, normalize)


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

    This is flat top-K accuracy: all classes with a mean compete, without a hierarchy. A class at
    the same distance ranks before the true one, so collapsed embeddings score 0. Exact: equal to
    comparing float64 distances of every pair. Cost is one float64 product of rows and means, in
    blocks.

    Args:
        train_embeddings: (m, dim) floats, finite; taken as given: not normalised.
        train_labels: (m,) or (m, 1) integers of any size.
        test_embeddings: (n, dim) floats, finite.
        test_labels: (n,) or (n, 1) integers.
        k: Positive integer or several, at most the number of classes with training rows.
        renormalize_means: Whether the means are scaled to unit length, for embeddings of unit
            length.

    Returns:
        {K: accuracy} with Python floats in [0, 1], K ascending. A test row of a class without
        training rows is a miss for every K; a warning gives their number.

    Raises:
        TypeError: If labels are not integers or embeddings not floats.
        ValueError: If shapes disagree, an input is empty or not finite, or `k` is not positive or
            exceeds the number of classes.

    Source:
        Mensink, Verbeek, Perronnin, Csurka. Distance-based image classification: generalizing to
        new classes at near-zero cost. PAMI 2013; Huang, Loy, Tang. Local
        similarity-aware deep feature embedding. NIPS 2016, Table 2.
        Differs: no metric is learned on top of the embedding; ties count against the row.

    Example:
        The means are 1 and 6: test row 2 is nearest to 1, test row 4 to 6.

        >>> train = np.array([[0.0], [2.0], [6.0]])
        >>> test = np.array([[2.0], [4.0]])
        >>> nearest_class_mean(train, [3, 3, 8], test, [3, 3], k=(1, 2))
        {1: 0.5, 2: 1.0}
    """
    data = (train_embeddings, train_labels, test_embeddings, test_labels)
    of_rows = _hits_of_rows(*data, k, renormalize_means)
    return {count: float(np.mean(hit)) for count, hit in of_rows.items()}


def nearest_class_mean_per_query(
    train_embeddings,
    train_labels,
    test_embeddings,
    test_labels,
    *,
    k=(1, 5),
    renormalize_means=False,
):
    """Whether `nearest_class_mean` counts each test row as a hit.

    Args:
        train_embeddings: As for `nearest_class_mean`.
        train_labels: As for `nearest_class_mean`.
        test_embeddings: As for `nearest_class_mean`.
        test_labels: As for `nearest_class_mean`.
        k: As for `nearest_class_mean`.
        renormalize_means: As for `nearest_class_mean`.

    Returns:
        {"top1": values, ...}, each (n,) float64 of 0 and 1 in the order of the test rows.

    Raises:
        TypeError: As `nearest_class_mean`.
        ValueError: As `nearest_class_mean`.
    """
    data = (train_embeddings, train_labels, test_embeddings, test_labels)
    return named(_hits_of_rows(*data, k, renormalize_means))


def named(of_counts):
    """{K: value} -> {"topK": value}."""
    return {f"top{count}": value for count, value in of_counts.items()}


def checked_counts(k, classes):
    """Returns `k` as a sorted list of positive integers, at most the number of classes."""
    counts = inputs.neighbour_counts(k, np.inf)
    check(counts[-1] <= classes, "`k` must not exceed the number of means", k=k, means=classes)
    return counts


def unit_rows(rows):
    """Rows scaled to unit length, in float64; rows of 0 stay 0."""
    rows = rows.astype(np.float64)
    largest = np.abs(rows).max(axis=1, keepdims=True)
    rows = rows / np.where(largest > 0, largest, 1.0)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(norms > 0, norms, 1.0)


def places_of(labels, ids):
    """(n,) the place of each label in the sorted `ids`; -1 where it is not there."""
    if np.result_type(labels, ids).kind == "f":
        # NumPy compares int64 with uint64 as floats, which merges ids above 2**53.
        labels, ids = labels.astype(object), ids.astype(object)
    places = np.searchsorted(ids, labels)
    found = places < len(ids)
    found[found] = ids[places[found]] == labels[found]
    return np.where(found, places, -1)


def _means(embeddings, labels, normalize):
    order = np.argsort(labels, kind="stable")
    ids, starts = np.unique(labels[order], return_index=True)
    means = np.empty((len(ids), embeddings.shape[1]))
    for place, rows in enumerate(np.split(order, starts[1:])):
        own = embeddings[rows].astype(np.float64)
        exponent = int(np.frexp(np.abs(own).max())[1])  # keeps sums of huge numbers from overflow
        means[place] = np.ldexp(np.ldexp(own, -exponent).mean(axis=0), exponent)
    return ids, unit_rows(means) if normalize else means


def _hits_of_rows(
    train_embeddings, train_labels, test_embeddings, test_labels, k, renormalize_means
):
    train_embeddings, train_labels = inputs.embeddings_and_labels(
        train_embeddings, train_labels, prefix="train_"
    )
    test_embeddings, test_labels = inputs.embeddings_and_labels(
        test_embeddings, test_labels, prefix="test_"
    )
    check_same_width(train_embeddings=train_embeddings, test_embeddings=test_embeddings)
    ids, means = _means(train_embeddings, train_labels, renormalize_means)
    counts = checked_counts(k, len(ids))
    own = places_of(test_labels, ids)
    unknown = int(np.count_nonzero(own < 0))
    if unknown:
        warnings.warn(
            f"{unknown} of {len(own)} test rows are of classes without a training row; they count "
            "as misses",
            stacklevel=3,
        )
    ranks = rank_means(test_embeddings, means, own)
    return {count: hits(ranks, count) for count in counts}


def check_same_width(**rows):
    """Raises a ValueError unless the two named arrays of rows have the same width."""
    (first, a), (second, b) = rows.items()
    check(
        a.shape[1] == b.shape[1],
        f"`{first}` and `{second}` must have the same dim",
        **{f"{first}.shape": a.shape, f"{second}.shape": b.shape},
    )
