import keras
import numpy as np
from keras import ops

from tfdml import pairwise
from tfdml.checks import check_bool, check_integer, check_positive
from tfdml.losses.base import MetricLoss, register


@register("clustering", published={"gamma": 1.0})
class ClusteringLoss(MetricLoss):
    """Structured clustering loss: the classes must be a better clustering than any other.

    A clustering is given by medoids S, as many rows as the batch has classes: every row belongs to
    the nearest of them. With distances d, NMI the normalized mutual information of that clustering
    and the classes, and m(i) the medoid of the class of row i, its row with the smallest sum of
    distances to the class:

        score(S) = gamma * (1 - NMI(S)) - Σ_i min_{s in S} d[i, s]

        loss = max(0, max_S score(S) + Σ_i d[i, m(i)])

    The maximum over S is searched from three starts: the medoids of the classes; rows added
    greedily, each time the one that raises the score most; and the rows with the largest sums of
    distances. From each, the best swap of a medoid for another row is repeated while it raises the
    score. The search has no gradient; ties go to the rows with the smallest sums of distances, then
    to the first. It takes batch³ operations per class.

    Args:
        gamma: Margin by which a clustering with NMI 0 must cost more than the classes, in distance
            or squared distance, summed over rows; > 0. Published: 1, `preset="published"`.
        squared: Whether d is the squared Euclidean distance.
        swaps: Largest number of swaps from each start, >= 0.

    Call:
        As `MetricLoss`. It is a sum over rows, so it grows with the batch.

    Source:
        Song, Jegelka, Rathod, Murphy. Deep metric learning via facility location. CVPR 2017.
        Differs: the paper has one start, rows added greedily, and refines it cluster by cluster,
        swapping a medoid for a row of its cluster; here any medoid may be swapped for any row, the
        best swap first. The start at the classes avoids a loss of 0 when the search misses the
        maximum.
    """

    def __init__(self, *, gamma=10.0, squared=False, swaps=5, normalize=True, name="clustering"):
        super().__init__(normalize=normalize, name=name)
        [self.gamma] = check_positive(gamma=gamma)
        [self.squared] = check_bool(squared=squared)
        [self.swaps] = check_integer(0, swaps=swaps)

    def call(self, batch):
        distances = batch.squared_distances if self.squared else batch.distances
        same = ~batch.negatives
        search = _Search(ops.stop_gradient(distances), same, self.gamma)
        own = _class_medoids(search)
        count = ops.sum(ops.cast(own, "int32"))
        starts = ops.stack([own, _added_medoids(search, count), _outer_medoids(search, count)])
        found = _Clusters(search, _best_medoids(search, starts, self.swaps))
        gaps = search.to_float(same & own) - search.to_float(found.nearest == search.index)
        return ops.relu(ops.sum(gaps * distances) + self.gamma * found.disagreement())


class _Search:
    """Data of a batch for the search. Medoids are (batch,) booleans."""

    def __init__(self, distances, same, gamma):
        self.dtype = keras.backend.standardize_dtype(distances.dtype)
        self.index = ops.arange(ops.shape(distances)[0])
        self.sums = ops.sum(distances, axis=0)
        # A medoid is in its own cluster, even if it coincides with another.
        self.distances = ops.where(pairwise.off_diagonal(distances), distances, -1.0)
        self.same = same
        # Leading axis: counts of all rows of a cluster, and of its rows of one class.
        self.counted = ops.stack([ops.ones_like(distances), self.to_float(same)])
        self.gamma = gamma
        self.resolution = 64 * float(np.finfo(self.dtype).eps)

    def to_float(self, booleans):
        return ops.cast(booleans, self.dtype)

    def tolerance(self, score):
        """Scores that differ by less are equal up to rounding."""
        return self.resolution * (self.gamma + ops.abs(score))

    def nearest(self, medoids):
        """Distance and index of the nearest medoid of each row, both (batch, 1)."""
        distances = ops.where(medoids, self.distances, np.inf)
        nearest = ops.argmin(distances, axis=1)
        return ops.min(distances, axis=1, keepdims=True), ops.expand_dims(nearest, 1)

    def disagreement(self, clusters, cells):
        """1 - NMI from the sums of n log n over the clusters, and over the classes in each."""
        classes = ops.sum(_log(ops.sum(self.counted[1], axis=0)))
        entropies = 2.0 * _n_log_n(ops.sum(self.counted[0, 0])) - clusters - classes
        one = entropies < 0.5  # the smallest above 0 is 2 log 2, for two rows
        differences = ops.relu(clusters + classes - 2.0 * cells)
        return ops.where(one, 0.0, differences / ops.where(one, 1.0, entropies))

    def score(self, cost, sums):
        return self.gamma * self.disagreement(sums[0], sums[1]) - cost


class _Clusters:
    """The clusters around medoids, and the scores of all clusterings that differ by one medoid.

    Rows are axis -2, new medoids axis -1. For a group of n rows, n log n is the sum of log n over
    its rows; so matrix products that count rows give the entropies of all clusterings.
    """

    def __init__(self, search, medoids):
        self.search, self.medoids = search, medoids
        self.distance, self.nearest = search.nearest(medoids)
        self.home = ops.squeeze(self.nearest, 1)
        self.together = search.counted * search.to_float(self.nearest == self.home)
        self.joins = search.distances < self.distance  # a row a new medoid
        self.stays = search.to_float(~self.joins)

    def disagreement(self):
        return self.search.disagreement(*self._sums())

    def score(self):
        return self.search.score(ops.sum(ops.relu(self.distance)), self._sums())

    def _sums(self):
        clusters_and_cells = ops.sum(_log(ops.sum(self.together, axis=2)), axis=1)
        return clusters_and_cells[0], clusters_and_cells[1]

    def scores_of_additions(self):
        """(batch,) floats: the score with each row as an additional medoid."""
        scores = self.search.score(*self._with_one_more()[:2])
        return ops.where(self.medoids, -np.inf, scores)

    def _with_one_more(self):
        search = self.search
        joined = search.counted @ search.to_float(self.joins)
        stayed = self.together @ self.stays
        distances = ops.where(self.joins, search.distances, self.distance)
        sums = ops.sum(_log(ops.where(self.joins, joined, stayed)), axis=1)
        return ops.sum(ops.relu(distances), axis=0), sums, joined, stayed

    def scores_of_swaps(self):
        """(batch, batch) floats: the score with row j as a medoid instead of medoid i.

        The effect of adding j is the same for all i. The effect of removing i is a sum over its
        rows that did not join j: each joins j or its second nearest medoid.
        """
        search = self.search
        cost, sums, joined, stayed = self._with_one_more()
        second_distance, second = search.nearest(self.medoids & (self.nearest != search.index))
        falls = search.distances >= second_distance
        follows = search.to_float(~self.joins & ~falls)
        among_second = search.counted * search.to_float(second == self.home)
        falling = self.together * search.to_float(second == ops.squeeze(second, 1))
        distances = ops.where(falls, second_distance, search.distances)
        added = ops.relu(distances) - ops.relu(
            ops.where(self.joins, search.distances, self.distance)
        )
        falls = search.to_float(falls)
        grown = (
            follows * _growth(joined, self.together @ follows)
            + falls * _growth(among_second @ self.stays, falling @ falls)
            - self.stays * _log(stayed)
        )
        members = search.to_float(ops.expand_dims(search.index, 1) == self.home)
        scores = search.score(cost + members @ added, sums[:, None] + members @ grown)
        return ops.where(self.medoids[:, None] & ~self.medoids, scores, -np.inf)


def _class_medoids(search):
    costs = pairwise.masked_sum(ops.relu(search.distances), search.same, axis=0)
    least = ops.min(ops.where(search.same, costs, np.inf), axis=1, keepdims=True)
    best = search.same & (costs <= least * (1.0 + search.resolution))
    medoids = ops.argmin(ops.where(best, search.sums, np.inf), axis=1)
    return ops.any(ops.expand_dims(medoids, 1) == search.index, axis=0)


def _added_medoids(search, count):
    def add(_, medoids):
        best = _first_of_best(search, _Clusters(search, medoids).scores_of_additions(), search.sums)
        return medoids | (search.index == best)

    return ops.fori_loop(0, count, add, search.index < 0)


def _outer_medoids(search, count):
    sums, index = ops.expand_dims(search.sums, 1), ops.expand_dims(search.index, 1)
    before = (search.sums > sums) | ((search.sums == sums) & (search.index < index))
    return ops.sum(ops.cast(before, "int32"), axis=1) < count


def _best_medoids(search, starts, swaps):
    def improve(start, best):
        medoids, score = _swapped(search, ops.take(starts, start, axis=0), swaps)
        better = score > best[1] + search.tolerance(score)
        return ops.where(better, medoids, best[0]), ops.where(better, score, best[1])

    first = starts[0], _Clusters(search, starts[0]).score()
    return ops.fori_loop(0, starts.shape[0], improve, first)[0]


def _swapped(search, medoids, swaps):
    """The medoids and their score after at most `swaps` best swaps."""
    sums = ops.reshape(search.sums - search.sums[:, None], (-1,))  # increase of the sums by a swap

    def swap(left, medoids, score):
        scores = ops.reshape(_Clusters(search, medoids).scores_of_swaps(), (-1,))
        best, limit = _first_of_best(search, scores, sums), score + search.tolerance(score)
        old, new = best // ops.shape(search.index)[0], best % ops.shape(search.index)[0]
        swapped = (medoids & (search.index != old)) | (search.index == new)
        # Recomputed, as matrix products on a GPU may be accurate to three digits only.
        new_score = _Clusters(search, swapped).score()
        better = (ops.max(scores) > limit) & (new_score > limit)
        return (
            ops.where(better, left - 1, 0),
            ops.where(better, swapped, medoids),
            ops.where(better, new_score, score),
        )

    start = ops.convert_to_tensor(swaps, "int32"), medoids, _Clusters(search, medoids).score()
    return ops.while_loop(lambda left, *_: left > 0, swap, start)[1:]


def _first_of_best(search, scores, sums):
    best = ops.max(scores)
    return ops.argmin(ops.where(scores >= best - search.tolerance(best), sums, np.inf))


def _growth(count, more):
    """Increase of n log n by `more` rows, per row, for groups of `count` rows."""
    return (_n_log_n(count + more) - _n_log_n(count)) / ops.where(more < 1, 1.0, more)


def _n_log_n(count):
    return count * _log(count)


def _log(count):
    return ops.log(ops.where(count < 1, 1.0, count))
