"""Softmax of each positive pair against the other pairs of its anchor, as in SupCon.

Positive pairs have weights: 1 for rows of one class, or the overlap of the labels of two rows.
"""

from keras import ops

from tfdml import pairwise
from tfdml.checks import check_not_negative, check_positive
from tfdml.losses.base import PairLoss
from tfdml.losses.batch import Traits


def pair_losses(logits, weights, negatives, margin, positives_repel):
    """Weighted cross-entropy of each positive pair among the pairs of its anchor.

    With z the logits:

        loss[i, p] = log(exp(z[i, p] - margin) + Σ_{n in N(i)} exp(z[i, n])) - (z[i, p] - margin)

    or, with `positives_repel`, with the sum of exp(z[i, j] - margin) over all positives j instead
    of the first term; times the weight of the pair.

    Args:
        logits: (n, m) floats.
        weights: (n, m) floats from 0 to 1, above 0 for the positives.
        negatives: (n, m) booleans.
        margin: Advantage that a positive must have, in logits.
        positives_repel: Whether all positives of an anchor are in the denominator.

    Returns:
        (n, m) floats, 0 where `weights` are.
    """
    positives = weights > 0
    if positives_repel:
        shifted = ops.where(positives, logits - margin, logits) if margin else logits
        push = pairwise.masked_logsumexp(shifted, positives | negatives, axis=1)[:, None]
        return weights * ops.where(positives, push - shifted, 0.0)
    push = pairwise.masked_logsumexp(logits, negatives, axis=1)[:, None]
    return weights * ops.softplus(ops.where(positives, push - logits + margin, 0.0))


def positive_weights(batch):
    """The weights of positive pairs and the mask of negative ones.

    Of ids, (n,) integers, a positive pair has the weight 1; of several labels a row, (n,
    num_labels), their overlap.
    """
    dtype = batch.embeddings.dtype
    if len(batch.labels.shape) == 1:
        return ops.cast(batch.positives, dtype), batch.negatives
    labels, _, self_positions = batch.references
    overlap = pairwise.label_overlap(batch.labels, labels, dtype)
    index = ops.arange(ops.shape(labels)[0], dtype=self_positions.dtype)
    not_self = index[None, :] != self_positions[:, None]
    return ops.where(not_self, overlap, 0.0), (overlap <= 0) & not_self


class SoftmaxLoss(PairLoss):
    """Base class of `SupConLoss`, `SINCERELoss` and `NTXentLoss`.

    A subclass may replace `mean(losses, positives)`.
    """

    traits = Traits(takes_label_sets=True)
    positives_repel = False

    def __init__(self, *, temperature, margin, normalize, name):
        super().__init__(normalize=normalize, name=name)
        [self.temperature] = check_positive(temperature=temperature)
        [self.margin] = check_not_negative(margin=margin)

    def call(self, batch):
        weights, negatives = positive_weights(batch)
        logits = batch.cosines / self.temperature
        losses = pair_losses(logits, weights, negatives, self.margin, self.positives_repel)
        return self.mean(losses, weights > 0)

    def mean(self, losses, positives):
        """Mean over the anchors with positives of the mean over the positives of each."""
        counts = ops.sum(ops.cast(positives, losses.dtype), axis=1)
        means = pairwise.masked_sum(losses, positives, axis=1) / ops.maximum(counts, 1.0)
        return pairwise.masked_mean(means, counts > 0)
