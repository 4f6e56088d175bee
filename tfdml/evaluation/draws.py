"""Scores of classes that were not trained on, over random draws of some images of each."""

import warnings

import numpy as np

from tfdml.checks import check
from tfdml.evaluation import inputs
from tfdml.evaluation.nearest_mean import nearest_class_mean
from tfdml.evaluation.retrieval import retrieval_scores


def few_shot_accuracies(
    embeddings, labels, *, shots=None, k=(1, 5), draws=10, seed=0, renormalize_means=False
):
    """Accuracies of the nearest class mean, with means of a few random rows of each class.

    Each draw shuffles the rows of every class, averages the first and classifies the rest with
    `nearest_class_mean`. So no row is in the mean that it is compared with. Other arguments and
    errors are those of `nearest_class_mean`.

    Args:
        shots: Rows of each class for its mean, at most all but one; None for half of its rows,
            rounded down. A class with a single row competes but has no test row.
        draws, seed: Number of draws, 1 or more, and their seed.

    Returns:
        {K: list of the accuracies of the draws}, Python floats in [0, 1], K ascending.

    Raises:
        ValueError: If no class has two rows.

    Source:
        Mensink et al., as for `nearest_class_mean`, who take half of the images of ImageNet-10K.

    Example:
        >>> line = np.array([[0.0], [1.0], [10.0], [11.0]])
        >>> few_shot_accuracies(line, [0, 0, 1, 1], k=1, draws=2)
        {1: [1.0, 1.0]}
    """
    embeddings, labels = inputs.embeddings_and_labels(embeddings, labels)
    draws = inputs.whole_number(draws, "draws", at_least=1)
    rng = np.random.default_rng(inputs.whole_number(seed, "seed", at_least=0))
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    check(counts.max() > 1, "a class must have 2 rows or more", rows=len(labels))
    taken = counts // 2
    if shots is not None:
        taken = inputs.whole_number(shots, "shots", at_least=1)
        few = np.count_nonzero(counts <= shots)
        if few:
            words = f"{few} of {len(counts)} classes have {shots} rows or fewer"
            warnings.warn(f"{words}: their means use all rows but one", stacklevel=2)
    taken = np.maximum(1, np.minimum(taken, counts - 1))
    first = np.concatenate([np.arange(n) < t for n, t in zip(counts, taken, strict=True)])
    scores = []
    for _ in range(draws):
        train = np.empty(len(labels), bool)
        train[np.lexsort((rng.random(len(labels)), classes))] = first
        data = embeddings[train], labels[train], embeddings[~train], labels[~train]
        scores.append(nearest_class_mean(*data, k=k, renormalize_means=renormalize_means))
    return {count: [of_draw[count] for of_draw in scores] for count in scores[0]}


def few_shot_scores(embeddings, labels, **options):
    """Mean and standard deviation of `few_shot_accuracies`, with its arguments, over the draws.

    Returns:
        {"scores": {"top1": mean, ...}, "deviations": {"top1": deviation, ...}}, Python floats.
        Deviations divide by draws - 1 and are missing for a single draw.
    """
    accuracies = few_shot_accuracies(embeddings, labels, **options)
    averages = _averages({f"top{k}": values for k, values in accuracies.items()})
    scores, deviations = ({name: of[i] for name, of in averages.items()} for i in (0, 1))
    several = all(len(values) > 1 for values in accuracies.values())
    return {"scores": scores, "deviations": deviations if several else {}}


def one_per_class_scores(
    embeddings, labels, k=(1, 5), *, metrics=("recall", "map"), draws=10, seed=0, similarity=None
):
    """Retrieval scores with one gallery row per class, over several random galleries.

    Each draw takes one row of every class for the gallery; all other rows are the queries. So every
    query has one relevant row, map is the mean reciprocal rank, and a class with a single row only
    adds a distractor to the gallery.

    Arguments and errors are those of `retrieval_scores`, with `k` at most the number of classes,
    and for `draws` and `seed` those of `few_shot_accuracies`.

    Returns:
        {name: (mean, deviation)} of Python floats: over the draws, the mean of the score and its
        standard deviation (divided by draws - 1; 0 for one draw).

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
        drawn = by_class[starts + rng.integers(0, counts)]
        gallery = {"gallery_embeddings": embeddings[drawn], "gallery_labels": labels[drawn]}
        data = np.delete(embeddings, drawn, axis=0), np.delete(labels, drawn)
        options = {"metrics": metrics, "similarity": similarity, **gallery}
        scores.append(retrieval_scores(*data, k, **options))
    return _averages({name: [of_draw[name] for of_draw in scores] for name in scores[0]})


def _averages(of_draws):
    """{name: (mean, standard deviation, 0 for one draw)} of {name: values of the draws}."""
    return {
        name: (float(np.mean(values)), float(np.std(values, ddof=min(1, len(values) - 1))))
        for name, values in of_draws.items()
    }
