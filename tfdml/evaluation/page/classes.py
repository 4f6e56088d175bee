"""Scores of the classes in a report, and which classes are confused."""

import numpy as np

_MOST_CONFUSIONS = 30


def class_means(ids, values):
    """(classes,) float64 means of the values of each class.

    Args:
        ids: (n,) integers from 0, without gaps.
        values: (n,) floats.
    """
    return np.bincount(ids, values) / np.bincount(ids)


def confusions(ids, nearest):
    """Pairs of classes where queries of one have a nearest neighbour of the other.

    Args:
        ids: (n,) integers from 0, the classes of the queries.
        nearest: (n,) integers, the classes of their nearest neighbours.

    Returns:
        At most 30 lists [class, other class, queries], by descending number of queries, then by
        class.
    """
    wrong = ids != nearest
    pairs, counts = np.unique(np.stack([ids, nearest], axis=1)[wrong], axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:_MOST_CONFUSIONS]
    return np.column_stack([pairs, counts])[order].tolist()
