"""Rows on one scale around one centre: exact distances, and fast scores with bounds of errors."""

from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

_CENTRE_ROWS = 1001  # odd: the median of equal rows is then that row
_CHUNK_ROWS = 256  # rows centred, or exact distances computed, at once
_UNIT = 2.0**-24  # relative rounding error of a float32
_UNSCALED = 10  # rows whose largest number is from 2**-11 to below 2**10 are not scaled


class Frame(NamedTuple):
    """A scale and a centre that queries and gallery share.

    Scaling by powers of two changes no comparison and keeps squares in range; rows of usual size
    need none, which saves a float64 copy. Rounding errors grow with the norms, so rows far from the
    origin but close together must be centred: on their median, as a single outlier would shift the
    mean.
    """

    exponent: int
    centre: np.ndarray  # (dim,) float64, scaled

    @classmethod
    def around(cls, rows, *others):
        """The frame centred on (n, dim) rows, in which all numbers of the rows are below 2**10."""
        largest = max(max(of.max(), -of.min()) for of in (rows, *others))
        exponent = int(np.frexp(largest)[1])
        if abs(exponent) <= _UNSCALED:
            exponent = 0
        sample = rows[:: max(1, len(rows) // _CENTRE_ROWS)][:_CENTRE_ROWS]
        sample = sample[: len(sample) - (len(sample) + 1) % 2].astype(np.float64)
        return cls(exponent, np.median(np.ldexp(sample, -exponent), axis=0))

    def points(self, rows, dtype: DTypeLike = np.float32):
        """The `Points` of rows, centred in `dtype`."""
        if self.exponent:
            rows = rows.astype(np.float64)
            np.ldexp(rows, -self.exponent, out=rows)
        count, dim = rows.shape
        factors, squared_norms = np.ones((count, dim + 2), dtype), np.empty(count)
        for first in range(0, count, _CHUNK_ROWS):
            some = slice(first, first + _CHUNK_ROWS)
            of_chunk = rows[some] - self.centre
            squared_norms[some] = np.einsum("ij,ij->i", of_chunk, of_chunk)
            factors[some, :-2] = of_chunk
        factors[:, -2] = -0.5 * squared_norms
        return Points(rows, factors, squared_norms)


class Points(NamedTuple):
    """The same rows twice: for exact distances, and centred for fast ones.

    The score of a for b is a.b - b.b/2 = (a.a - D**2) / 2: one product if a has a one and b has
    -b.b/2 as an extra column.
    """

    exact: np.ndarray  # (n, dim) floats; those given, unless they are scaled
    factors: np.ndarray  # (n, dim + 2): the centred rows, minus half their squares, ones
    squared_norms: np.ndarray  # (n,) float64, of the centred rows before rounding

    def score_rows(self, some=slice(None)):
        """(n, dim + 1) factors of scores, for queries, given as a slice or integers."""
        return np.delete(self.factors[some], -2, axis=1)

    def score_columns(self):
        """(dim + 1, n) factors of scores, for a gallery: a view."""
        return self.factors[:, :-1].T

    def nearness_rows(self, some=slice(None)):
        """(n, dim + 2) factors of the nearness -D**2/2, for queries, given as a slice.

        Unlike scores, it serves both rows of a pair as the query; its rounding error is larger.
        """
        rows = self.factors[some].copy()
        rows[:, [-2, -1]] = rows[:, [-1, -2]]
        return rows

    def nearness_columns(self):
        """(dim + 2, n) factors of the nearness, for a gallery: a view."""
        return self.factors.T


def points_of(search):
    """The `Points` of the queries and of the gallery; one object if they are the same rows."""
    frame = Frame.around(search.gallery, search.queries)
    gallery = frame.points(search.gallery)
    return gallery if search.among_themselves else frame.points(search.queries), gallery


def score_error(norms, others, dim):
    """Largest rounding error of float32 scores of rows with these norms."""
    return _rounding(norms * others + others * others / 2, dim)


def nearness_error(norms, others, dim):
    """Largest rounding error of the float32 nearness of rows with these norms."""
    return _rounding((norms + others) ** 2 / 2, dim)


def _rounding(size, dim):
    # Factors, their products and the sum of these, in any order, are rounded dim + 5 times, each by
    # at most 2**-24 of the sum of their sizes. The rest covers the rounding of bounds; the last
    # term covers products too small for a float32.
    return (dim + 8) * _UNIT * (size + 2.0**-100)


def score_bounds(squared_norms, distances, dim):
    """(low, high) float32 bounds of scores, given exact squared norms of queries and distances.

    Rows score above `high` only if they are nearer than the squared distance, and below `low` only
    if they are farther.
    """
    score = (squared_norms - distances) / 2
    return _bounds(score, squared_norms, distances, dim, score_error)


def nearness_bounds(squared_norms, distances, dim):
    """`score_bounds` of the nearness."""
    return _bounds(-distances / 2, squared_norms, distances, dim, nearness_error)


def _bounds(values, squared_norms, distances, dim, error_of):
    norms = np.sqrt(squared_norms)
    # By the triangle inequality, rows of norm above `reach` are farther than the distance, by more
    # than their rounding error; that of all others is at most the error at `reach`.
    reach = norms * (1 + 4 * (dim + 8) * _UNIT) + np.sqrt(distances)
    error = error_of(norms, reach, dim)
    return (values - error).astype(np.float32), (values + error).astype(np.float32)


def squared_distances(queries, places, gallery, rows):
    """(t,) float64 squared distances of queries at (t,) places, or at one, to (t,) gallery rows."""
    distances = np.empty(len(rows))
    for first in range(0, len(rows), _CHUNK_ROWS):
        some = slice(first, first + _CHUNK_ROWS)
        difference = gallery[rows[some]].astype(np.float64, copy=False)
        difference -= queries[places if np.ndim(places) == 0 else places[some]]
        np.square(difference, out=difference).sum(axis=1, out=distances[some])
    return distances
