"""Ranks of relevant rows by plain loops, and rows to be ranked."""

import numpy as np


def nearness(queries, gallery):
    """(n, m) minus squared distances, of differences in float64."""
    return -np.square(queries[:, None].astype(float) - gallery.astype(float)).sum(axis=2)


def ranks_by_loops(scores, labels, gallery_labels, excluded):
    """(query, place, rank) of every relevant row of (n, m) scores; ties count as errors."""
    found = []
    for query, row in enumerate(scores):
        same, kept = gallery_labels == labels[query], ~excluded[query]
        for place, score in enumerate(sorted(row[same & kept], reverse=True), start=1):
            found.append((query, place, place + np.sum(row[kept & ~same] >= score)))
    return found


def uneven_labels(rng, rows=60):
    """Huge ids of nine uneven classes, and of three rows alone."""
    labels = (9 * rng.random(rows) ** 2).astype(int) + 2**60
    labels[:3] = [1, 2, 2**62]
    return labels


def grid(rng, rows=60):
    """Rows with many exact ties."""
    return rng.integers(0, 4, (rows, 3)).astype(float)
