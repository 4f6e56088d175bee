"""Differentiable ranks of the positives of each anchor, in memory of one number per pair."""

from typing import Any

from keras import ops

from tfdml import pairwise


def soft_ranks(similarities, positives, others, step):
    """How many others rank before each positive, by a smooth step function; (n, m), else 0.

        ranks[i, p] = Σ_{j in others(i), j != p} step(s[i, j] - s[i, p])

    One pass per positive of an anchor, forward and backward, so that the memory stays (n, m).
    `step` is a function of differences to the step and its derivative.
    """
    place = ops.cumsum(ops.cast(positives, "int32"), axis=1) * ops.cast(positives, "int32")
    last = ops.max(place, initial=0)

    def each_positive(similarities, add, start):
        """Loops over the first, the second, ... positive of all anchors at once."""

        def body(count, total):
            chosen = place == count
            score = pairwise.masked_sum(similarities, chosen, axis=1)[:, None]
            valid = others & ~chosen & ops.any(chosen, axis=1, keepdims=True)
            value, slope = step(similarities - score)
            steps = ops.where(valid, value, 0.0), ops.where(valid, slope, 0.0)
            return count + 1, total + add(chosen, *steps)

        first = ops.ones((), dtype="int32")
        return ops.while_loop(lambda count, _: count <= last, body, (first, start))[1]

    def add_ranks(chosen, value, slope):
        return ops.where(chosen, ops.sum(value, axis=1, keepdims=True), 0.0)

    def ranks(similarities):
        def gradient(*args, upstream=None):
            (upstream,) = args if upstream is None else (upstream,)

            def add_slopes(chosen, value, slope):
                weight = pairwise.masked_sum(upstream, chosen, axis=1)[:, None]
                own = ops.sum(slope, axis=1, keepdims=True)
                return weight * (slope - ops.where(chosen, own, 0.0))

            return each_positive(similarities, add_slopes, ops.zeros_like(similarities))

        return each_positive(similarities, add_ranks, ops.zeros_like(similarities)), gradient

    differentiable: Any = ops.custom_gradient(ranks)
    return differentiable(similarities)


def sigmoid_step(temperature):
    """The logistic function of differences / temperature, and its derivative."""

    def step(differences):
        value = ops.sigmoid(differences / temperature)
        return value, value * (1.0 - value) / temperature

    return step


def true_step(differences):
    """1 for a difference above 0, and 0.5 for a tie; without gradient."""
    return (ops.sign(differences) + 1.0) / 2.0, ops.zeros_like(differences)


def average_precision_loss(before, ranks, positives):
    """One minus the mean over queries of the mean over positives of before / ranks."""
    counts = ops.sum(ops.cast(positives, ranks.dtype), axis=1)
    average = pairwise.masked_sum(before / ranks, positives, axis=1) / ops.maximum(counts, 1.0)
    return pairwise.masked_mean(1.0 - average, counts > 0)


def ranked_masks(batch, rank_self):
    """The positive and negative mask; with `rank_self` an anchor is its own positive."""
    if not rank_self:
        return batch.positives, batch.negatives
    labels = batch.references.labels
    nowhere = ops.full_like(batch.references.self_positions, -1)
    return pairwise.masks_against(batch.labels, labels, nowhere)[0], batch.negatives
