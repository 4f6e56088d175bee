"""Classification by the nearest mean of a class."""

import warnings

import numpy as np

from tfdml.checks import check
from tfdml.evaluation import inputs
from tfdml.evaluation.exact.means import hits, rank_means
from tfdml.evaluation.signatures import takes_arguments_of


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
    ids, classes = rows_by_class(labels)
    means = np.empty((len(ids), embeddings.shape[1]))
    for mean, rows in zip(means, classes, strict=True):
        own = embeddings[rows].astype(np.float64)
        exponent = int(np.frexp(np.abs(own).max())[1])  # keeps sums of huge numbers from overflow
        mean[:] = np.ldexp(np.ldexp(own, -exponent).mean(axis=0), exponent)
    return ids, unit_rows(means) if normalize else means


def _hits(
    train_embeddings,
    train_labels,
    test_embeddings,
    test_labels,
    *,
    k=(1, 5),
    renormalize_means=False,
):
    train, train_labels = inputs.embeddings_and_labels(train_embeddings, train_labels, "train_")
    test, test_labels = inputs.embeddings_and_labels(test_embeddings, test_labels, "test_")
    inputs.check_same_width(train_embeddings=train, test_embeddings=test)
    means = class_means(train, train_labels, normalize=renormalize_means)
    return hits_by_means(test, test_labels, *means, k=k)


@takes_arguments_of(_hits)
def nearest_class_mean(*data, **options):
    """Top-K accuracy of nearest-class-mean classification.

    With mu_c the mean of the training rows of class c and D the Euclidean distance:

        top-K = share of test rows x, of class y, with fewer than K classes c != y for which
                D(x, mu_c) <= D(x, mu_y)

    This is flat top-K accuracy: all classes with a mean compete, without a hierarchy. A class at
    the same distance ranks before the true one, so collapsed embeddings score 0. Exact: equal to
    comparing float64 distances of every pair. Cost is one product of rows and means, in blocks.

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
    return shares_of_hits(_hits(*data, **options))


@takes_arguments_of(_hits)
def nearest_class_mean_per_query(*data, **options):
    """Whether `nearest_class_mean` counts each test row as a hit.

    Args and errors are those of `nearest_class_mean`.

    Returns:
        {"top1": values, ...}, each (n,) float64 of 0 and 1 in the order of the test rows.
    """
    return _hits(*data, **options)


def rows_by_class(labels):
    """The class ids, ascending, and for each the numbers of its rows, ascending."""
    order = np.argsort(labels, kind="stable")
    ids, starts = np.unique(labels[order], return_index=True)
    return ids, np.split(order, starts[1:])


def unit_rows(rows):
    """Rows scaled to unit length, in float64; rows of 0 stay 0."""
    rows = rows.astype(np.float64)
    largest = np.abs(rows).max(axis=1, keepdims=True)
    rows = rows / np.where(largest > 0, largest, 1.0)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(norms > 0, norms, 1.0)


def hits_by_means(embeddings, labels, ids, means, *, k, equal_means="against"):
    """Whether the mean of the class of each row is among the K nearest.

    Args:
        embeddings: (n, dim) floats.
        labels: (n,) integers.
        ids: (classes,) integers, ascending, the classes of the means.
        means: (classes, dim) floats.
        k: Positive integer or several, at most the number of means.
        equal_means: As for `zero_shot_accuracy`.

    Returns:
        {"topK": (n,) float64 in [0, 1]}, K ascending; 0 for rows of classes without a mean.
    """
    counts = inputs.neighbour_counts(k, np.inf)
    check(counts[-1] <= len(ids), "`k` must not exceed the number of means", k=k, means=len(ids))
    own = _places_of(labels, ids)
    unknown = int(np.count_nonzero(own < 0))
    if unknown:
        cause = "are of classes without a training row; they count as misses"
        warnings.warn(f"{unknown} of {len(own)} test rows {cause}", stacklevel=5)
    ranks = rank_means(embeddings, means, own)
    return {f"top{count}": hits(ranks, count, equal_means) for count in counts}


def shares_of_hits(per_query):
    """{"topK": (n,) hits} -> {K: their share}."""
    return {int(name.removeprefix("top")): float(np.mean(hit)) for name, hit in per_query.items()}


def _places_of(labels, ids):
    """(n,) the place of each label in the sorted `ids`; -1 where it is not there."""
    labels, ids = inputs.dense_ids(labels, ids)  # which keeps their order
    places = np.searchsorted(ids, labels)
    found = places < len(ids)
    found[found] = ids[places[found]] == labels[found]
    return np.where(found, places, -1)
