"""Retrieval with one random gallery row per class: the protocol of VehicleID."""

import numpy as np

from tfdml.checks import check
from tfdml.evaluation import inputs
from tfdml.evaluation.retrieval import retrieval_scores


def one_per_class_scores(
    embeddings,
    labels,
    k=(1, 5),
    *,
    metrics=("recall", "map"),
    draws=10,
    seed=0,
    similarity=None,
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
    check(
        len(counts) < len(labels),
        "`labels` must hold two rows or more of one class",
        rows=len(labels),
        classes=len(counts),
    )
    scores = []
    for _ in range(draws):
        gallery = np.zeros(len(labels), bool)
        gallery[by_class[starts + rng.integers(0, counts)]] = True
        scores.append(
            retrieval_scores(
                embeddings[~gallery],
                labels[~gallery],
                k,
                metrics=metrics,
                gallery_embeddings=embeddings[gallery],
                gallery_labels=labels[gallery],
                similarity=similarity,
            )
        )
    return {name: _mean_and_deviation([of[name] for of in scores]) for name in scores[0]}


def _mean_and_deviation(values):
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return float(np.mean(values)), deviation
