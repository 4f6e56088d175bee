"""What a report tells of the classes: their scores, and which are taken for which."""

import numpy as np

_MOST_CONFUSIONS = 30


def class_means(ids, values):
    """(classes,) float64 means of the values of each class.

    Args:
        ids: (n,) integers from 0, without a gap.
        values: (n,) floats.
    """
    return np.bincount(ids, values) / np.bincount(ids)


def confusions(ids, nearest):
    """The pairs of classes where queries of one have a nearest neighbour of the other.

    Args:
        ids: (n,) integers from 0, the classes of the queries.
        nearest: (n,) integers, the classes of their nearest neighbours.

    Returns:
        At most 30 lists [class, other class, queries], the most queries first, then by class.
    """
    wrong = ids != nearest
    pairs, counts = np.unique(np.stack([ids, nearest], axis=1)[wrong], axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:_MOST_CONFUSIONS]
    return np.column_stack([pairs, counts])[order].tolist()
