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
    """Accuracies of `nearest_class_mean`, with means of a few random rows of each class.

    Each draw averages some rows of every class and classifies the rest. Other arguments and errors
    are those of `nearest_class_mean`.

    Args:
        shots: Rows of each class for its mean, at most all but one; None for half of its rows,
            rounded down. A class with a single row competes but has no test row.
        draws, seed: Number of draws, 1 or more, and their seed.

    Returns:
        {K: list of the accuracies of the draws}, Python floats in [0, 1], K ascending.

    Source:
        Mensink et al., as for `nearest_class_mean`, who take half of the images of ImageNet-10K.
    """
    embeddings, labels = inputs.embeddings_and_labels(embeddings, labels)
    draws, rng = inputs.whole_number(draws, "draws", at_least=1), inputs.generator(seed)
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    check(counts.max() > 1, "a class must have 2 rows or more", rows=len(labels))
    taken = counts // 2
    if shots is not None:
        taken = inputs.whole_number(shots, "shots", at_least=1)
        few = np.count_nonzero(counts <= shots)
        if few:
            words = f"{few} of {len(counts)} classes have {shots} rows or fewer"
            warnings.warn(f"{words}: their means use all rows but one", stacklevel=2)
    taken, scores = np.maximum(1, np.minimum(taken, counts - 1)), []
    for _ in range(draws):
        train = drawn_rows(classes, taken, rng)
        data = embeddings[train], labels[train], embeddings[~train], labels[~train]
        scores.append(nearest_class_mean(*data, k=k, renormalize_means=renormalize_means))
    return {count: [drawn[count] for drawn in scores] for count in scores[0]}


def one_per_class_scores(
    embeddings, labels, k=(1, 5), *, metrics=("recall", "map"), draws=10, seed=0, similarity=None
):
    """Retrieval scores with one gallery row per class, over several random galleries.

    Each draw takes one row of every class for the gallery; all other rows are the queries. So map
    is the mean reciprocal rank, and a class with a single row only adds a distractor. Arguments and
    errors are those of `retrieval_scores` and, for `draws` and `seed`, `few_shot_accuracies`.

    Returns:
        {name: (mean, standard deviation)}, Python floats; the deviation of one draw is 0.

    Source:
        Liu, Tian, Wang, Pang, Huang. Deep relative distance learning: tell the difference between
        similar vehicles. CVPR 2016, section 5; ten draws as in later work on that data set.
    """
    embeddings, labels = inputs.embeddings_and_labels(embeddings, labels)
    draws, rng = inputs.whole_number(draws, "draws", at_least=1), inputs.generator(seed)
    by_class = np.argsort(labels, kind="stable")
    _, starts, counts = np.unique(labels[by_class], return_index=True, return_counts=True)
    expectation = "`labels` must hold two rows or more of one class"
    check(len(counts) < len(labels), expectation, rows=len(labels), classes=len(counts))
    scores, options = [], {"metrics": metrics, "similarity": similarity}
    for _ in range(draws):
        drawn = by_class[starts + rng.integers(0, counts)]
        gallery = {"gallery_embeddings": embeddings[drawn], "gallery_labels": labels[drawn]}
        data = np.delete(embeddings, drawn, axis=0), np.delete(labels, drawn)
        scores.append(retrieval_scores(*data, k, **options, **gallery))
    return {name: average([drawn[name] for drawn in scores]) for name in scores[0]}


def drawn_rows(classes, taken, rng):
    """(n,) booleans, as many random rows of each of the classes 0, 1, ... as are to be taken."""
    order = np.lexsort((rng.random(len(classes)), classes))
    counts, drawn = np.bincount(classes), np.empty(len(classes), bool)
    drawn[order] = np.concatenate([np.arange(n) < t for n, t in zip(counts, taken, strict=True)])
    return drawn


def average(values):
    """The mean and the standard deviation, 0 for one value."""
    return float(np.mean(values)), float(np.std(values, ddof=min(1, len(values) - 1)))
