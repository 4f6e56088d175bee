"""Statistics of the distances of all positive and negative pairs."""

import numpy as np

from tfdml.evaluation.all_pairs import AllPairs


def distance_statistics(embeddings, labels):
    """Mean and variance of the distances of positive and of negative pairs, and their LDA score.

    Over all unordered pairs of different rows, with D the Euclidean distance (not squared):

        lda = (mean of negative D - mean of positive D)**2
              / (variance of positive D + variance of negative D)

    The larger `lda`, the better a threshold separates both kinds of pairs; it does not depend on
    the scale of the embeddings. Exact: equal to float64 distances of every pair, to about 1e-10 of
    the largest. Cost is one float64 product of all pairs, in blocks; for n x dim inputs it takes
    about 40 * n * dim bytes on top of the blocks.

    Args:
        embeddings: (n, dim) floats, finite; taken as given: not normalised. Published values are
            for rows of unit length, with distances from 0 to 2.
        labels: (n,) or (n, 1) integers of any size, one class id per row.

    Returns:
        {"positive_mean", "positive_variance", "negative_mean", "negative_variance", "lda"}, Python
        floats. Variances divide by the number of pairs. If both are 0, `lda` is infinite, or 0 if
        the means are equal too, as with collapsed embeddings.

    Raises:
        TypeError: If `labels` are not integers or `embeddings` not floats.
        ValueError: If the shapes disagree, an input is empty or not finite, no two rows share a
            class, or all do.

    Source:
        Yuan, Yang, Zhang. Hard-aware deeply cascaded embedding. ICCV 2017, eq. 12.

    Example:
        Positive distances 1 and 3, negative ones 4, 7, 3 and 6: (5 - 2)**2 / (1 + 2.5).

        >>> line = np.array([[0.0], [1.0], [4.0], [7.0]])
        >>> statistics = distance_statistics(line, np.array([0, 0, 1, 1]))
        >>> [round(value, 3) for value in statistics.values()]
        [2.0, 1.0, 5.0, 2.5, 2.571]
    """
    pairs = AllPairs(embeddings, labels)
    positive, negative = _Moments(), _Moments()
    pairs.visit(positive.add, negative.add)
    gap, spread = negative.mean - positive.mean, positive.variance + negative.variance
    return {
        "positive_mean": float(np.ldexp(positive.mean, pairs.exponent)),
        "positive_variance": float(np.ldexp(positive.variance, 2 * pairs.exponent)),
        "negative_mean": float(np.ldexp(negative.mean, pairs.exponent)),
        "negative_variance": float(np.ldexp(negative.variance, 2 * pairs.exponent)),
        "lda": float(gap**2 / spread) if spread else (np.inf if gap else 0.0),
    }


class _Moments:
    """Running mean and variance of numbers that are added in blocks."""

    def __init__(self):
        self.count = 0
        self.mean = 0.0
        self.squares = 0.0  # sum of squared differences from the mean

    def add(self, values):
        """Adds an array of numbers, which it overwrites."""
        if not values.size:
            return
        # Chan, Golub, LeVeque. Updating formulae for computing sample variances. 1979.
        mean = values.mean()
        values -= mean
        gap, count = mean - self.mean, self.count + values.size
        self.mean += gap * values.size / count
        squares = np.square(values, out=values).sum()
        self.squares += squares + gap**2 * self.count * values.size / count
        self.count = count

    @property
    def variance(self):
        return self.squares / self.count
