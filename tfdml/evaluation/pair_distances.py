"""Distances of all pairs of rows: how many positive and negative pairs have which."""

import threading
from typing import NamedTuple

import numpy as np

_EXACT_PAIRS = 2**23  # up to this many are sorted, more are counted in bins
_BIN_BITS = 18  # of the fraction of distances, which bins distinguish
_FEW_BITS = 14  # of small distances
_SMALL = 2.0**-4  # of the largest possible distance
_ROUNDED_BITS = 20  # of a float64 that are rounded away: distances of 33 bits remain
_LEAST = 2.0**-40  # of the largest possible distance: smaller ones share a bin, except 0
_NEAR = 1e-8  # of its square: a product of smaller ones loses too many digits


class Histogram(NamedTuple):
    """Numbers of unordered pairs of rows by distance, in ascending order.

    Each distance counts for itself, rounded to 33 binary digits, or more than 8.4 million pairs are
    counted in bins: above a sixteenth of the largest possible distance of the relative width 4e-6,
    else of 6e-5; 0 has its own.
    """

    low: np.ndarray  # (b,) smallest distance of the pairs
    high: np.ndarray  # (b,) largest
    positive: np.ndarray  # (b,) int64 numbers of pairs of one class
    negative: np.ndarray  # (b,) of two classes
    exact: bool  # whether low and high are equal
    positive_mean: float  # of the distances; NaN without such pairs
    positive_deviation: float  # the root of the mean square; divides by the number of pairs
    negative_mean: float
    negative_deviation: float


class DistanceCounter:
    """Counts the distances of tiles of rows by ascending class; several threads may add some."""

    def __init__(self, classes, farthest, exact_squares):
        self.classes, self.exact_squares, self.lock = classes, exact_squares, threading.Lock()
        self.near, self.bins = _NEAR * farthest**2, _Bins(farthest)
        self.exact = len(classes) * (len(classes) - 1) // 2 <= _EXACT_PAIRS
        self.counts = np.zeros((2, 0 if self.exact else self.bins.count), np.int64)
        self.parts = {}  # {(row, column, kind): its distances or moments}

    def add(self, rows, columns, squared):
        """Adds the distances above the diagonal of a tile, whose (b, c) squares it changes."""
        row, column = np.divmod(np.flatnonzero(squared < self.near), squared.shape[1])
        squared[row, column] = self.exact_squares(rows.start + row, columns.start + column)
        distances = np.sqrt(squared, out=squared)
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
        self.parts[part] = _moments(distances)
        keys = self.bins.of(distances)
        least = int(keys.min())
        counts = np.bincount(keys - least)
        with self.lock:
            self.counts[int(positive), least : least + len(counts)] += counts

    def result(self, exponent):
        """The `Histogram`, of distances times 2**exponent."""
        kinds = [[self.parts[p] for p in sorted(self.parts) if p[2] == kind] for kind in (1, 0)]
        if self.exact:
            distances = [rounded(np.concatenate([np.empty(0), *parts])) for parts in kinds]
            low, places = np.unique(np.concatenate(distances), return_inverse=True)
            high, places = low, np.split(places, [len(distances[0])])
            counts = [np.bincount(part, minlength=len(low)) for part in places]
            kinds = [[_moments(part) for part in parts] for parts in kinds]
        else:
            used = np.flatnonzero(self.counts.sum(axis=0))
            low, high = self.bins.ends(used)
            counts = self.counts[::-1, used]
        (_, *positive), (_, *negative) = (_merged(parts) for parts in kinds)
        moments = np.ldexp([*positive, *negative], exponent).tolist()
        ends = np.ldexp(low, exponent), np.ldexp(high, exponent)
        return Histogram._make((*ends, *counts, self.exact, *moments))


class _Bins:
    """Bins of distances, by the leading bits of their float32."""

    def __init__(self, farthest):
        # The bits of non-negative floats have the order of the floats.
        ends = np.array([_LEAST * farthest, _SMALL * farthest, farthest], np.float32)
        least, small, largest = ends.view(np.int32).tolist()
        self.wide, self.narrow = 23 - _FEW_BITS, 23 - _BIN_BITS
        self.first = (least >> self.wide) - 1
        self.small = small >> self.wide << self.wide
        self.shift = (self.small >> self.wide) - self.first - (self.small >> self.narrow)
        self.count = (largest >> self.narrow) + self.shift + 2

    def of(self, distances):
        """(n,) integers, the bins of distances."""
        bits = distances.astype(np.float32).view(np.int32)
        few = np.maximum((bits >> self.wide) - self.first, 1) * (bits > 0)
        return np.where(bits < self.small, few, (bits >> self.narrow) + self.shift)

    def ends(self, bins):
        """The smallest and the largest float32 in bins."""
        few = bins < (self.small >> self.wide) - self.first
        shift = np.where(few, self.wide, self.narrow)
        first = np.where(few, bins + self.first, bins - self.shift)
        low, high = (
            np.where(bins > 0, of, 0).astype(np.int32).view(np.float32).astype(np.float64)
            for of in (first << shift, (first + 1 << shift) - 1)
        )
        low[bins == 1] = 0.0
        return low, high


def rounded(distances):
    """The distances with 33 binary digits, so that those that agree to 10 decimal ones tie."""
    bits = distances.view(np.int64) + 2 ** (_ROUNDED_BITS - 1)
    return (bits >> _ROUNDED_BITS << _ROUNDED_BITS).view(np.float64)


def _moments(values):
    """Number, mean and deviation of values."""
    return len(values), values.mean(), values.std()


def _merged(parts):
    """The `_moments` of all values, from those of parts."""
    if not parts:
        return 0, np.nan, np.nan
    counts, means, deviations = np.array(parts).T
    shares = counts / counts.sum()
    mean = means[0] + np.sum(shares * (means - means[0]))  # exact for equal means
    variance = np.sum(shares * (deviations**2 + (means - mean) ** 2))
    return counts.sum(), mean, np.sqrt(variance)
