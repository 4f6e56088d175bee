"""Means of classes and their ranks by plain loops, with which scores are compared."""

import numpy as np


def means_by_loops(rows, labels):
    """{label: mean of its rows}, labels ascending."""
    rows, labels = np.asarray(rows, float), np.asarray(labels)
    return {
        label: sum(rows[labels == label]) / sum(labels == label)
        for label in np.unique(labels).tolist()
    }


def hits_by_loops(rows, labels, means, k, equal_means="against"):
    """Whether the mean of the class of each row is one of the K nearest of {class: mean}."""
    hits = []
    for row, label in zip(rows.astype(float), labels.tolist(), strict=True):
        own = means.get(label, np.nan)
        limit = np.sum((row - own) ** 2) * (1 + 1e-9)  # ties may differ by rounding
        others = [mean for of, mean in means.items() if of != label]
        equal = sum((mean == own).all() for mean in others)
        nearer = [m for m in others if np.sum((row - m) ** 2) <= limit and (m != own).any()]
        places = {
            "against": [len(nearer) + equal],
            "expected": range(len(nearer), len(nearer) + equal + 1),  # each is as likely
            "as_one": [len({mean.tobytes() for mean in nearer})],
        }[equal_means]
        hits.append(np.mean([place < k for place in places]) if label in means else 0.0)
    return hits
