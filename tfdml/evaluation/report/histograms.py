"""Histograms of the distances of positive and of negative pairs."""

from typing import NamedTuple

import numpy as np

from tfdml.evaluation.pairs import AllPairs

_MOST_PAIRS = 10**8  # up to this many are all counted; above, a sample, which takes seconds
_SAMPLE = 10**6
_FINE_BINS = 2**16
_BINS = 60


class Histograms(NamedTuple):
    """Shares of the pairs of each kind in the same bins."""

    edges: np.ndarray  # (bins + 1,) distances
    positive: np.ndarray  # (bins,) shares, which sum to 1
    negative: np.ndarray
    positive_mean: float
    negative_mean: float
    positive_pairs: int  # all of them, even if only a sample is counted
    negative_pairs: int
    sample: int | None  # number of sampled pairs of each kind; None if all are counted


def distance_histograms(embeddings, labels):
    """Counts the Euclidean distances of all positive and negative pairs.

    If there are more than 100 million pairs, counts a million of each kind, drawn at random with
    replacement.

    Args:
        embeddings: (n, dim) floats, finite.
        labels: (n,) integers.

    Returns:
        `Histograms` in at most 60 bins from the least to the largest distance.

    Raises:
        ValueError: If there are no pairs of one kind.
    """
    pairs = AllPairs(embeddings, labels)
    farthest = 2 * pairs.largest_norm or 1.0
    sample = _SAMPLE if pairs.positive + pairs.negative > _MOST_PAIRS else None
    blocks = enumerate(pairs.sample(sample)[::-1]) if sample else pairs.blocks()
    counts, sums = np.zeros((2, _FINE_BINS), np.int64), [0.0, 0.0]
    for positive, distances in blocks:
        distances = distances.reshape(-1)
        sums[positive] += float(distances.sum())
        distances *= _FINE_BINS / farthest
        bins = np.minimum(distances, _FINE_BINS - 1, out=distances).astype(np.int64)
        counts[int(positive)] += np.bincount(bins, minlength=_FINE_BINS)
    totals = counts.sum(axis=1)
    used = np.flatnonzero(counts.sum(axis=0))
    width = -(-(used[-1] + 1 - used[0]) // _BINS)  # fine bins per bin
    starts = np.arange(used[0], used[-1] + 1, width)
    edges = np.append(starts, starts[-1] + width) * (farthest / _FINE_BINS)
    edges = np.ldexp(edges, pairs.exponent)
    negative, positive = np.add.reduceat(counts, starts, axis=1) / totals[:, None]
    negative_mean, positive_mean = np.ldexp(sums / totals, pairs.exponent).tolist()
    numbers = pairs.positive, pairs.negative, sample
    return Histograms(edges, positive, negative, positive_mean, negative_mean, *numbers)
