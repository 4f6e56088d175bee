"""Scores of classes that were not trained on, over random draws of some images of each."""

import warnings

import numpy as np

from tfdml.checks import check
from tfdml.evaluation import inputs
from tfdml.evaluation.exact.search import apart
from tfdml.evaluation.nearest_mean import nearest_class_mean
from tfdml.evaluation.retrieval import retrieval_scores


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
