"""Distances of all pairs of rows: how many positive and negative pairs have which."""

import threading
from typing import NamedTuple

import numpy as np

_EXACT_PAIRS = 2**23  # up to this many are sorted, more are counted in bins
_BIN_BITS = 18  # bins per power of two, as a power of two
_ROUNDED_BITS = 20  # of a float64 that are rounded away: distances of 33 bits remain
_ZERO = 2.0**-24  # of the largest possible distance: smaller ones are 0 to float32


class Histogram(NamedTuple):
    """Numbers of unordered pairs of rows by distance, in ascending order.

    Up to 8.4 million pairs each distance counts for itself, rounded to 33 binary digits; more pairs
    are counted in bins of relative width 4e-6.
    """

    low: np.ndarray  # (b,) smallest distance of the pairs
    high: np.ndarray  # (b,) largest
    positive: np.ndarray  # (b,) int64 numbers of pairs of one class
    negative: np.ndarray  # (b,) of two classes
    exact: bool  # whether low and high are equal
    positive_mean: float  # of the distances; NaN without such pairs
    positive_variance: float  # divided by the number of pairs
    negative_mean: float
    negative_variance: float


class DistanceCounter:
    """Counts the distances of tiles; several threads may add some.

    Args:
        classes: (n,) integers, in ascending order.
        farthest: A distance that none exceeds.
    """

    def __init__(self, classes, farthest):
        self.classes, self.zero, self.lock = classes, _ZERO * farthest, threading.Lock()
        self.exact = len(classes) * (len(classes) - 1) // 2 <= _EXACT_PAIRS
        self.first_key = int(_keys(np.array([self.zero]))[0])
        keys = int(_keys(np.array([farthest]))[0]) - self.first_key + 2
        self.counts = np.zeros((2, 0 if self.exact else keys), np.int64)
        self.parts = {}  # {(row, column, kind): its distances or moments}

    def add(self, rows, columns, squared):
        """Adds the distances above the diagonal of a tile.

        Args:
            rows: Slice of the rows.
            columns: Slice of the columns, not before the rows.
            squared: (b, c) float64 squared distances; changed.
        """
        distances = np.sqrt(np.maximum(squared, 0, out=squared), out=squared)
        distances[distances < self.zero] = 0.0
        if self.classes[rows.stop - 1] < self.classes[columns.start]:
            self._add(rows, columns, False, distances.reshape(-1))
            return
        row, column = (np.arange(of.start, of.stop) for of in (rows, columns))
        same = self.classes[rows, None] == self.classes[columns]
        above = row[:, None] < column
        self._add(rows, columns, True, distances[same & above])
        self._add(rows, columns, False, distances[~same & above])

    def _add(self, rows, columns, positive, distances):
        if not distances.size:
            return
        part = rows.start, columns.start, positive
        if self.exact:
            self.parts[part] = distances.copy()
            return
        keys = np.maximum(_keys(distances) - self.first_key, 0)
        least = int(keys.min())
        counts = np.bincount(keys - least)
        self.parts[part] = _moments(distances)
        with self.lock:
            self.counts[int(positive), least : least + len(counts)] += counts

    def result(self, exponent):
        """The `Histogram`, of distances times 2**exponent."""
        kinds = [[self.parts[p] for p in sorted(self.parts) if p[2] == kind] for kind in (0, 1)]
        if self.exact:
            negative, positive = (_rounded(np.concatenate([np.empty(0), *of])) for of in kinds)
            low = high = np.union1d(negative, positive)
            counts = []
            for of in (positive, negative):
                values, found = np.unique(of, return_counts=True)
                counts.append(np.zeros(len(low), np.int64))
                counts[-1][np.searchsorted(low, values)] = found
            kinds = [[_moments(of) for of in kind] for kind in kinds]
        else:
            used = np.flatnonzero(self.counts.sum(axis=0))
            low, high = _distances(used + self.first_key), _distances(used + self.first_key + 1)
            high = np.nextafter(high, 0)
            low[used == 0] = high[used == 0] = 0.0
            counts = self.counts[::-1, used]
        (_, *negative), (_, *positive) = (_merged(kind) for kind in kinds)
        moments = []
        with np.errstate(over="ignore", under="ignore"):
            for mean, variance in (positive, negative):
                moments += [np.ldexp(mean, exponent), np.ldexp(variance, 2 * exponent)]
            low, high = np.ldexp(low, exponent), np.ldexp(high, exponent)
        moments = map(float, moments)
        return Histogram(low, high, *counts, self.exact, *moments)


def _keys(distances):
    """(n,) integers in the order of distances, equal in a bin."""
    return distances.astype(np.float32).view(np.int32) >> (23 - _BIN_BITS)


def _distances(keys):
    """The smallest distances that have these keys."""
    return (keys << (23 - _BIN_BITS)).astype(np.int32).view(np.float32).astype(np.float64)


def _rounded(distances):
    bits = distances.view(np.int64) + 2 ** (_ROUNDED_BITS - 1)
    return (bits >> _ROUNDED_BITS << _ROUNDED_BITS).view(np.float64)


def _moments(values):
    """Number, mean and variance of values."""
    return len(values), values.mean(), values.var()


def _merged(parts):
    """The `_moments` of all values, from those of parts."""
    if not parts:
        return 0, np.nan, np.nan
    counts, means, variances = np.array(parts).T
    shares = counts / counts.sum()
    mean = means[0] + np.sum(shares * (means - means[0]))  # exact for equal means
    return counts.sum(), mean, np.sum(shares * (variances + (means - mean) ** 2))
