import functools

import numpy as np
from keras import ops

from tfdml import pairwise
from tfdml.checks import check_bool, check_one_of, check_positive
from tfdml.losses.base import PairLoss, register

_MANY = 16  # positives of an anchor, from which on sorting is faster than one after another


@register("triplet")
class TripletLoss(PairLoss):
    """Triplet loss: pulls positives nearer to their anchor than negatives, by a margin.

    With squared distances D, over the triplets (a, p, n) of the batch selected by `mining`:

        Σ max(0, D[a, p] - D[a, n] + margin)

    divided according to `average_over`.

    Args:
        margin: Margin in squared distance (0 to 4 for unit rows), or in distance if not `squared`;
            > 0.
        mining: `"all"` valid triplets; `"semihard"`: for each pair (a, p) the nearest negative
            farther than p, or the farthest negative if there is none; `"hard"`: for each anchor its
            farthest positive and its nearest negative.
        squared: Whether D is the squared Euclidean distance.
        average_over: `"triplets"` (all mined triplets), `"active"` (those with a loss above 0),
            `"batch"` (rows) or `"sum"` (no division).

    Source:
        Schroff, Kalenichenko, Philbin. FaceNet. CVPR 2015, eq. 3 ("all", "semihard").
        Hermans, Beyer, Leibe. In defense of the triplet loss. 2017, eq. 5 ("hard").
        Differs: averages, where FaceNet prints a sum; `average_over="sum"` gives the sum.
    """

    def __init__(
        self,
        *,
        margin=1.0,
        mining="all",
        squared=True,
        average_over="triplets",
        normalize=True,
        name="triplet",
    ):
        super().__init__(normalize=normalize, name=name)
        [self.margin] = check_positive(margin=margin)
        [self.mining] = check_one_of(("all", "semihard", "hard"), mining=mining)
        [self.squared] = check_bool(squared=squared)
        means = ("triplets", "active", "batch", "sum")
        [self.average_over] = check_one_of(means, average_over=average_over)

    def call(self, batch):
        mine = self._hardest if self.mining == "hard" else self._each_pair
        total, active, mined = mine(batch)
        if self.average_over == "sum":
            return total
        if self.average_over == "batch":
            return total / ops.cast(ops.shape(batch.labels)[0], total.dtype)
        count = mined if self.average_over == "triplets" else active
        return total / ops.maximum(count, 1.0)

    def _hardest(self, batch):
        """Loss, active and mined triplets: one per anchor, found without gradient."""
        positives, negatives = batch.positives, batch.negatives
        valid = ops.any(positives, axis=1) & ops.any(negatives, axis=1)
        closeness = pairwise.closeness(batch.embeddings, batch.references.embeddings)
        farthest = pairwise.highest(-ops.where(positives, closeness, np.inf))
        nearest = pairwise.highest(ops.where(negatives, closeness, -np.inf))
        far, near = (self._distances(batch, rows) for rows in (farthest, nearest))
        gaps = ops.where(valid, far - near + self.margin, 0.0)
        active = ops.cast(gaps > 0, gaps.dtype)
        return ops.sum(ops.relu(gaps)), ops.sum(active), ops.sum(ops.cast(valid, gaps.dtype))

    def _distances(self, batch, rows):
        """(n,) distances of the embeddings to one row of the references each."""
        gaps = batch.embeddings - ops.take(batch.references.embeddings, rows, axis=0)
        squared = ops.sum(ops.square(gaps), axis=1)
        return squared if self.squared else pairwise.root(squared)

    def _each_pair(self, batch):
        """Loss, active and mined triplets over the negatives of every pair (a, p).

        For given active triplets the loss is linear in the distances: how often each is added or
        subtracted, counted without gradient, is the gradient. So no array exceeds batch².
        """
        distances = batch.squared_distances if self.squared else batch.distances
        positives = batch.positives
        negatives = batch.negatives & ops.any(positives, axis=1)[:, None]
        counts = self._count(ops.stop_gradient(distances), positives, negatives)
        weights, active, mined = map(ops.stop_gradient, counts)
        return ops.sum(weights * distances) + self.margin * active, active, mined

    def _count(self, distances, positives, negatives):
        places = ops.cast(positives, "int32")
        rank = ops.cumsum(places, axis=1) * places
        one_by_one = functools.partial(self._count_one_by_one, distances, rank, negatives)
        if self.mining == "all":
            return one_by_one(lambda distances, negatives, reach: negatives)
        return ops.cond(
            ops.max(rank, initial=0) > _MANY,
            functools.partial(self._count_sorted, distances, positives, negatives),
            functools.partial(one_by_one, _choose_semihard),
        )

    def _count_one_by_one(self, distances, rank, negatives, choose):
        """Takes one positive of every anchor at a time."""
        last = ops.max(rank, initial=0)

        def count_next_positive(step, weights, active, mined):
            chosen_positive = rank == step
            has_positive = ops.any(chosen_positive, axis=1, keepdims=True)
            reach = pairwise.masked_sum(distances, chosen_positive, axis=1)[:, None]
            triplets = choose(distances, negatives & has_positive, reach)
            costly = ops.cast(triplets & (reach - distances + self.margin > 0), distances.dtype)
            costs = ops.sum(costly, axis=1, keepdims=True)
            weights = weights - costly + ops.where(chosen_positive, costs, 0.0)
            mined = mined + ops.sum(ops.cast(triplets, distances.dtype))
            return step + 1, weights, active + ops.sum(costs), mined

        zero = ops.zeros((), dtype=distances.dtype)
        start = ops.ones((), dtype="int32"), ops.zeros_like(distances), zero, zero
        return ops.while_loop(lambda step, *_: step <= last, count_next_positive, start)[1:]

    def _count_sorted(self, distances, positives, negatives):
        """Sorts the distances of every anchor, as long for any number of positives."""
        positives = positives & ops.any(negatives, axis=1, keepdims=True)
        chosen = _semihard_columns(distances, negatives)
        rows, width = ops.shape(distances)
        places = ops.arange(rows, dtype=chosen.dtype)[:, None] * width + chosen
        gaps = distances - ops.take(ops.reshape(distances, (-1,)), places) + self.margin
        costly = ops.cast(positives & (gaps > 0), distances.dtype)
        flat = (ops.reshape(each, (-1,)) for each in (costly, places))
        farther = ops.reshape(ops.segment_sum(*flat, num_segments=rows * width), (rows, width))
        return costly - farther, ops.sum(costly), ops.sum(ops.cast(positives, distances.dtype))


def _choose_semihard(distances, negatives, reach):
    beyond = negatives & (distances > reach)
    nearest = pairwise.masked_min(distances, beyond, axis=1)
    farthest = pairwise.masked_max(distances, negatives, axis=1)
    chosen = ops.where(ops.any(beyond, axis=1), nearest, farthest)[:, None]
    candidates = negatives & (distances == chosen)
    return candidates & (ops.cumsum(ops.cast(candidates, "int32"), axis=1) == 1)  # first of ties


def _semihard_columns(distances, negatives):
    """(n, m) columns: the negative that `_choose_semihard` chooses for each column as positive."""
    # By distance, and at equal distances the negatives first, as the sort is stable.
    order = ops.argsort(ops.cast(~negatives, "int32"), axis=1)
    order = _at(order, ops.argsort(_at(distances, order), axis=1))
    within = ops.cumsum(ops.cast(_at(negatives, order), "int32"), axis=1)
    within = _at(within, ops.argsort(order, axis=1))  # negatives that are not beyond
    nearest_first = ops.argsort(ops.where(negatives, distances, np.inf), axis=1)
    farthest = pairwise.masked_max(distances, negatives, axis=1)[:, None]
    nearer = ops.sum(ops.cast(negatives & (distances < farthest), "int32"), axis=1, keepdims=True)
    count = ops.sum(ops.cast(negatives, "int32"), axis=1, keepdims=True)
    return _at(nearest_first, ops.where(within < count, within, nearer))


def _at(matrix, columns):
    """(n, k) entries of the rows of a matrix (n, m) at columns (n, k)."""
    rows = ops.arange(ops.shape(matrix)[0], dtype=columns.dtype)[:, None]
    return pairwise.entries(matrix, rows, columns)
