"""Classes that were not trained on, by some images of each: class means, or one gallery row."""

import warnings

import numpy as np

from tfdml.checks import check
from tfdml.evaluation import inputs
from tfdml.evaluation.ranking.means import hits, rank_means
from tfdml.evaluation.ranking.search import apart
from tfdml.evaluation.retrieval import retrieval_scores
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
    return shares_of_hits(_hits(*data, **options))


@takes_arguments_of(_hits)
def nearest_class_mean_per_query(*data, **options):
    """Whether `nearest_class_mean` counts each test row as a hit.

    Args and errors are those of `nearest_class_mean`.

    Returns:
        {"top1": values, ...}, each (n,) float64 of 0 and 1 in the order of the test rows.
    """
    return _hits(*data, **options)


def few_shot_accuracies(
    embeddings, labels, *, shots=None, k=(1, 5), draws=10, seed=0, renormalize_means=False
):
    """Accuracies of the nearest class mean, with means of a few random rows of each class.

    Each draw shuffles the rows of every class, averages the first and classifies the rest with
    `nearest_class_mean`. So no row is in the mean that it is compared with.

    Args:
        embeddings: (n, dim) floats, finite; taken as given: not normalised.
        labels: (n,) or (n, 1) integers of any size.
        shots: Rows of each class for its mean; None for half of its rows, rounded down. A class
            with `shots` rows or fewer uses all but one. The mean of a class with a single row is
            that row; the class competes but has no test row.
        k: Positive integer or several, at most the number of classes.
        draws: Number of draws.
        seed: Seed of the draws.
        renormalize_means: Whether the means are scaled to unit length, for embeddings of unit
            length.

    Returns:
        {K: list of the accuracies of the draws}, Python floats in [0, 1], K ascending.

    Raises:
        TypeError: If labels are not integers or embeddings not floats.
        ValueError: If shapes disagree, an input is empty or not finite, no class has two rows, or
            an option is out of range.

    Source:
        Mensink, Verbeek, Perronnin, Csurka. Distance-based image classification: generalizing to
        new classes at near-zero cost. PAMI 2013, which takes half of the images of ImageNet-10K.

    Example:
        >>> line = np.array([[0.0], [1.0], [10.0], [11.0]])
        >>> few_shot_accuracies(line, [0, 0, 1, 1], k=1, draws=2)
        {1: [1.0, 1.0]}
    """
    embeddings, labels = inputs.embeddings_and_labels(embeddings, labels)
    if shots is not None:
        shots = inputs.whole_number(shots, "shots", 1)
    draws = inputs.whole_number(draws, "draws", 1)
    rng = np.random.default_rng(inputs.whole_number(seed, "seed", 0))
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    check(counts.max() > 1, "a class must have 2 rows or more", rows=len(labels))
    taken = np.maximum(1, np.minimum(counts // 2 if shots is None else shots, counts - 1))
    if shots is not None and (counts <= shots).any():
        few = f"{np.count_nonzero(counts <= shots)} of {len(counts)} classes have {shots} rows or"
        warnings.warn(f"{few} fewer: their means use all rows but one", stacklevel=2)
    scores = []
    for _ in range(draws):
        train = _drawn(classes, counts, taken, rng)
        data = (embeddings[train], labels[train], embeddings[~train], labels[~train])
        scores.append(nearest_class_mean(*data, k=k, renormalize_means=renormalize_means))
    return {count: [of_draw[count] for of_draw in scores] for count in scores[0]}


def few_shot_scores(embeddings, labels, **options):
    """Mean and standard deviation of `few_shot_accuracies` over the draws.

    Args:
        embeddings: As for `few_shot_accuracies`.
        labels: As for `few_shot_accuracies`.
        **options: Options of `few_shot_accuracies`.

    Returns:
        {"scores": {"top1": mean, ...}, "deviations": {"top1": deviation, ...}}, Python floats.
        Deviations divide by draws - 1 and are missing for a single draw.
    """
    accuracies = few_shot_accuracies(embeddings, labels, **options)
    return _over_draws({f"top{k}": values for k, values in accuracies.items()})


def one_per_class_scores(
    embeddings, labels, k=(1, 5), *, metrics=("recall", "map"), draws=10, seed=0, similarity=None
):
    """Retrieval scores with one gallery row per class, over several random galleries.

    Each draw takes one row of every class for the gallery; all other rows are the queries. So every
    query has one relevant row, map is the mean reciprocal rank, and a class with a single row only
    adds a distractor to the gallery.

    Args:
        embeddings: (n, dim) floats, finite; taken as given: not normalised.
        labels: (n,) or (n, 1) integers of any size, two or more of one class.
        k: As for `retrieval_scores`; at most the number of classes.
        metrics: As for `retrieval_scores`.
        draws: Galleries drawn; >= 1.
        seed: Integer >= 0, seed of the draws.
        similarity: As for `retrieval_scores`.

    Returns:
        {name: (mean, deviation)} of Python floats: over the draws, the mean of the score and its
        standard deviation (divided by draws - 1; 0 for one draw).

    Raises:
        TypeError: As `retrieval_scores`.
        ValueError: As `retrieval_scores`, if no class has two rows, or `draws` or `seed` are out of
            range.

    Source:
        Liu, Tian, Wang, Pang, Huang. Deep relative distance learning: tell the difference between
        similar vehicles. CVPR 2016, section 5; ten draws as in later work on that data set.

    Example:
        >>> line, labels = np.array([[0.0], [1.0], [5.0], [6.0]]), np.array([0, 0, 1, 1])
        >>> one_per_class_scores(line, labels, k=1)
        {'recall@1': (1.0, 0.0), 'map': (1.0, 0.0)}
    """
    embeddings, labels = inputs.embeddings_and_labels(embeddings, labels)
    draws = inputs.whole_number(draws, "draws", at_least=1)
    rng = np.random.default_rng(inputs.whole_number(seed, "seed", at_least=0))
    by_class = np.argsort(labels, kind="stable")
    _, starts, counts = np.unique(labels[by_class], return_index=True, return_counts=True)
    expectation = "`labels` must hold two rows or more of one class"
    check(len(counts) < len(labels), expectation, rows=len(labels), classes=len(counts))
    scores = []
    for _ in range(draws):
        queries = np.ones(len(labels), bool)
        queries[by_class[starts + rng.integers(0, counts)]] = False
        data, gallery = apart(embeddings, labels, queries)
        options = {"metrics": metrics, "similarity": similarity, **gallery}
        scores.append(retrieval_scores(*data, k, **options))
    draws_of = {name: [of_draw[name] for of_draw in scores] for name in scores[0]}
    means, deviations = _over_draws(draws_of).values()
    return {name: (mean, deviations.get(name, 0.0)) for name, mean in means.items()}


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
    if np.result_type(labels, ids).kind == "f":
        # NumPy compares int64 with uint64 as floats, which merges ids above 2**53.
        labels, ids = labels.astype(object), ids.astype(object)
    places = np.searchsorted(ids, labels)
    found = places < len(ids)
    found[found] = ids[places[found]] == labels[found]
    return np.where(found, places, -1)


def _drawn(classes, counts, taken, rng):
    """(n,) booleans: `taken` random rows of each class."""
    order = np.lexsort((rng.random(len(classes)), classes))
    place_in_class = np.arange(len(classes)) - np.repeat(np.cumsum(counts) - counts, counts)
    drawn = np.empty(len(classes), bool)
    drawn[order] = place_in_class < np.repeat(taken, counts)
    return drawn


def _over_draws(draws):
    """Means and deviations, as of `few_shot_scores`, of {name: scores of the draws}."""
    several = {name: scores for name, scores in draws.items() if len(scores) > 1}
    return {
        "scores": {name: float(np.mean(scores)) for name, scores in draws.items()},
        "deviations": {name: float(np.std(scores, ddof=1)) for name, scores in several.items()},
    }
