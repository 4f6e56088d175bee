import keras
import numpy as np
from keras import ops

from tfdml import pairwise
from tfdml.checks import check_bool, check_integer, check_positive
from tfdml.losses.base import MetricLoss


@keras.saving.register_keras_serializable("tfdml")
class ClusteringLoss(MetricLoss):
    """Structured clustering loss: the classes must be a better clustering than any other.

    A clustering is given by medoids S, as many rows as the batch has classes: every row belongs to
    the nearest of them. With distances d, NMI the normalized mutual information of that clustering
    and the classes, 2 I / (H + H), and m(i) the medoid of the class of row i, its row with the
    smallest sum of distances to the class:

        score(S) = gamma * (1 - NMI(S)) - Σ_i min_{s in S} d[i, s]

        loss = max(0, max_S score(S) + Σ_i d[i, m(i)])

    The maximum over S is searched heuristically. There are three starts: the medoids of the
    classes; rows added greedily, each time the one that raises the score most; and the rows with
    the largest sums of distances. From each start, the best swap of a medoid for another row is
    repeated while it raises the score. The search has no gradient; ties go to the rows with the
    smallest sums of distances, then to the first. It takes batch³ operations per class.

    Args:
        gamma: Margin by which a clustering with NMI 0 must cost more than the classes, in distance
            or squared distance, summed over rows; > 0. Published: 1, `preset="published"`.
        squared: Whether d is the squared Euclidean distance.
        swaps: Largest number of swaps from each start, >= 0.
        normalize: Whether rows are scaled to unit length first.
        name: Name of the loss in logs.

    Call:
        labels: (batch,) integers, one class id per row.
        embeddings: (batch, dim) floats; made unit length unless `normalize=False`.
        Returns a scalar float32, >= 0; 0 when the batch holds a single class, or a single row of
        each. It is a sum over rows, so it grows with the batch.

    Raises:
        TypeError: If `labels` are not integers or `embeddings` not floats.
        ValueError: If the shapes disagree or an option is out of range.

    Source:
        Song, Jegelka, Rathod, Murphy. Deep metric learning via facility location. CVPR 2017,
        section 3.
        Differs: the paper has one start, rows added greedily, and refines it cluster by cluster,
        swapping a medoid for a row of its cluster; here any medoid may be swapped for any row, the
        best swap first. Starting from the medoids of the classes too avoids a loss of 0 when the
        search misses the maximum.

    Example:
        >>> rows = np.array([[0.], [1.], [5.], [6.]])
        >>> print(float(ClusteringLoss(gamma=1.0, normalize=False)(np.array([0, 1, 0, 1]), rows)))
        9.0
    """

    def __init__(self, *, gamma=10.0, squared=False, swaps=5, normalize=True, name="clustering"):
        super().__init__(normalize=normalize, name=name)
        check_positive(gamma=gamma)
        check_bool(squared=squared)
        check_integer(0, swaps=swaps)
        self.gamma = float(gamma)
        self.squared = squared
        self.swaps = int(swaps)

    def call(self, labels, embeddings):
        distance = pairwise.squared_distances if self.squared else pairwise.distances
        distances = distance(embeddings)
        same = labels[:, None] == labels[None, :]
        batch = _Batch(ops.stop_gradient(distances), same, self.gamma)
        own = _class_medoids(batch)
        count = ops.sum(ops.cast(own, "int32"))
        starts = ops.stack([own, _added_medoids(batch, count), _outer_medoids(batch, count)])
        found = _Clusters(batch, _best_medoids(batch, starts, self.swaps))
        gaps = batch.to_float(same & own) - batch.to_float(found.nearest == batch.index)
        return ops.relu(ops.sum(gaps * distances) + self.gamma * found.disagreement())


class _Batch:
    """Data of a batch for the search. Medoids are (batch,) booleans.

    Args:
        distances: (batch, batch) floats >= 0.
        same: (batch, batch) booleans: rows of one class.
        gamma: Weight of 1 - NMI.
    """

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
        """1 - NMI from the sums of n log n over the clusters, and over the classes in each.

        0 if all rows are of one cluster and of one class.
        """
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

    def __init__(self, batch, medoids):
        self.batch, self.medoids = batch, medoids
        self.distance, self.nearest = batch.nearest(medoids)
        self.home = ops.squeeze(self.nearest, 1)
        self.together = batch.counted * batch.to_float(self.nearest == self.home)
        self.joins = batch.distances < self.distance  # a row a new medoid
        self.stays = batch.to_float(~self.joins)

    def disagreement(self):
        return self.batch.disagreement(*self._sums())

    def score(self):
        return self.batch.score(ops.sum(ops.relu(self.distance)), self._sums())

    def _sums(self):
        clusters_and_cells = ops.sum(_log(ops.sum(self.together, axis=2)), axis=1)
        return clusters_and_cells[0], clusters_and_cells[1]

    def scores_of_additions(self):
        """(batch,) floats: the score with each row as an additional medoid."""
        scores = self.batch.score(*self._with_one_more()[:2])
        return ops.where(self.medoids, -np.inf, scores)

    def _with_one_more(self):
        batch = self.batch
        joined = batch.counted @ batch.to_float(self.joins)
        stayed = self.together @ self.stays
        distances = ops.where(self.joins, batch.distances, self.distance)
        sums = ops.sum(_log(ops.where(self.joins, joined, stayed)), axis=1)
        return ops.sum(ops.relu(distances), axis=0), sums, joined, stayed

    def scores_of_swaps(self):
        """(batch, batch) floats: the score with row j as a medoid instead of medoid i.

        The effect of adding j is the same for all i. The effect of removing i is a sum over its
        rows that did not join j: each joins j or its second nearest medoid.
        """
        batch = self.batch
        cost, sums, joined, stayed = self._with_one_more()
        second_distance, second = batch.nearest(self.medoids & (self.nearest != batch.index))
        falls = batch.distances >= second_distance
        follows = batch.to_float(~self.joins & ~falls)
        among_second = batch.counted * batch.to_float(second == self.home)
        falling = self.together * batch.to_float(second == ops.squeeze(second, 1))
        distances = ops.where(falls, second_distance, batch.distances)
        added = ops.relu(distances) - ops.relu(
            ops.where(self.joins, batch.distances, self.distance)
        )
        falls = batch.to_float(falls)
        grown = (
            follows * _growth(joined, self.together @ follows)
            + falls * _growth(among_second @ self.stays, falling @ falls)
            - self.stays * _log(stayed)
        )
        rows_of = batch.to_float(ops.expand_dims(batch.index, 1) == self.home)
        scores = batch.score(cost + rows_of @ added, sums[:, None] + rows_of @ grown)
        return ops.where(self.medoids[:, None] & ~self.medoids, scores, -np.inf)


def _class_medoids(batch):
    costs = pairwise.masked_sum(ops.relu(batch.distances), batch.same, axis=0)
    least = ops.min(ops.where(batch.same, costs, np.inf), axis=1, keepdims=True)
    best = batch.same & (costs <= least * (1.0 + batch.resolution))
    medoids = ops.argmin(ops.where(best, batch.sums, np.inf), axis=1)
    return ops.any(ops.expand_dims(medoids, 1) == batch.index, axis=0)


def _added_medoids(batch, count):
    def add(_, medoids):
        best = _first_of_best(batch, _Clusters(batch, medoids).scores_of_additions(), batch.sums)
        return medoids | (batch.index == best)

    return ops.fori_loop(0, count, add, batch.index < 0)


def _outer_medoids(batch, count):
    sums, index = ops.expand_dims(batch.sums, 1), ops.expand_dims(batch.index, 1)
    before = (batch.sums > sums) | ((batch.sums == sums) & (batch.index < index))
    return ops.sum(ops.cast(before, "int32"), axis=1) < count


def _best_medoids(batch, starts, swaps):
    def search(start, best):
        medoids, score = _swapped(batch, ops.take(starts, start, axis=0), swaps)
        better = score > best[1] + batch.tolerance(score)
        return ops.where(better, medoids, best[0]), ops.where(better, score, best[1])

    first = starts[0], _Clusters(batch, starts[0]).score()
    return ops.fori_loop(0, starts.shape[0], search, first)[0]


def _swapped(batch, medoids, swaps):
    """The medoids and their score after at most `swaps` best swaps."""
    sums = ops.reshape(batch.sums - batch.sums[:, None], (-1,))  # increase of the sums by a swap

    def swap(left, medoids, score):
        scores = ops.reshape(_Clusters(batch, medoids).scores_of_swaps(), (-1,))
        best, limit = _first_of_best(batch, scores, sums), score + batch.tolerance(score)
        old, new = best // ops.shape(batch.index)[0], best % ops.shape(batch.index)[0]
        swapped = (medoids & (batch.index != old)) | (batch.index == new)
        # Recomputed, as matrix products on a GPU may be accurate to three digits only.
        new_score = _Clusters(batch, swapped).score()
        better = (ops.max(scores) > limit) & (new_score > limit)
        return (
            ops.where(better, left - 1, 0),
            ops.where(better, swapped, medoids),
            ops.where(better, new_score, score),
        )

    start = ops.convert_to_tensor(swaps, "int32"), medoids, _Clusters(batch, medoids).score()
    return ops.while_loop(lambda left, *_: left > 0, swap, start)[1:]


def _first_of_best(batch, scores, sums):
    best = ops.max(scores)
    return ops.argmin(ops.where(scores >= best - batch.tolerance(best), sums, np.inf))


def _growth(count, more):
    """Increase of n log n by `more` rows, per row, for groups of `count` rows."""
    return (_n_log_n(count + more) - _n_log_n(count)) / ops.where(more < 1, 1.0, more)


def _n_log_n(count):
    return count * _log(count)


def _log(count):
    return ops.log(ops.where(count < 1, 1.0, count))
