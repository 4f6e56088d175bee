"""Few-shot classification by the means of a few images of each new class."""

import warnings

import numpy as np

from tfdml.checks import check
from tfdml.evaluation import inputs
from tfdml.evaluation.transfer import nearest_class_mean


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
    taken = np.minimum(counts // 2 if shots is None else shots, counts - 1)
    taken = np.maximum(taken, 1)
    if shots is not None and (counts <= shots).any():
        warnings.warn(
            f"{np.count_nonzero(counts <= shots)} of {len(counts)} classes have {shots} rows or "
            "fewer: their means use all rows but one",
            stacklevel=2,
        )
    accuracies = {}
    for _ in range(draws):
        train = _drawn(classes, counts, taken, rng)
        scores = nearest_class_mean(
            *(embeddings[train], labels[train], embeddings[~train], labels[~train]),
            k=k,
            renormalize_means=renormalize_means,
        )
        for count, score in scores.items():
            accuracies.setdefault(count, []).append(score)
    return accuracies


def _drawn(classes, counts, taken, rng):
    """(n,) booleans: `taken` random rows of each class."""
    order = np.lexsort((rng.random(len(classes)), classes))
    place_in_class = np.arange(len(classes)) - np.repeat(np.cumsum(counts) - counts, counts)
    drawn = np.empty(len(classes), bool)
    drawn[order] = place_in_class < np.repeat(taken, counts)
    return drawn
