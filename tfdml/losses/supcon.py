from keras import ops

from tfdml import pairwise
from tfdml.checks import check_not_negative, check_positive
from tfdml.losses.base import PairLoss, register
from tfdml.losses.batch import Traits


@register("supcon")
class SupConLoss(PairLoss):
    """Supervised contrastive loss: softmax of each positive pair among all pairs of its anchor.

    With s the cosines, z[i, p] = s[i, p] / temperature - margin for positives p, z[i, n] =
    s[i, n] / temperature for rows n of other classes, and A(i) all rows but i:

        loss = mean over anchors i of the mean over positives p of
               weight[i, p] (log Σ_{a in A(i)} exp(z[i, a]) - z[i, p])

    Positives also repel each other. Anchors without a positive do not count. The weight is 1 for
    two rows of one class. With several labels a row, it is the number of labels that both rows have
    over the number that either has; rows that share one are positives, all others negatives.

    Args:
        temperature: Divisor of the cosines, T; > 0. Published: 0.1.
        margin: Advantage that a positive must have over all other pairs, in logits; >= 0. 0 for the
            published loss.

    Call:
        As `MetricLoss`, also of several labels a row; 0 when the batch holds no positive pair.

    Source:
        Khosla et al. Supervised contrastive learning. NeurIPS 2020, eq. 2 (L_out).
        Barbano et al. Unbiased supervised contrastive learning. ICLR 2023: the margin (ε-SupCon).
        Differs: a mean over the anchors, where eq. 2 prints a sum; without the factor
        temperature / 0.07 of the code of both; larger than ε-SupCon by the margin, a constant.
    """

    traits = Traits(takes_label_sets=True)
    positives_repel = True  # in the denominator of each other

    def __init__(self, *, temperature=0.1, margin=0.0, normalize=True, name="supcon"):
        super().__init__(normalize=normalize, name=name)
        [self.temperature] = check_positive(temperature=temperature)
        [self.margin] = check_not_negative(margin=margin)

    def call(self, batch):
        weights, negatives = _positive_weights(batch)
        positives, logits = weights > 0, batch.cosines / self.temperature
        if self.positives_repel:
            if self.margin:
                logits = ops.where(positives, logits - self.margin, logits)
            push = pairwise.masked_logsumexp(logits, positives | negatives, axis=1)[:, None]
            losses = ops.where(positives, push - logits, 0.0)
        else:
            push = pairwise.masked_logsumexp(logits, negatives, axis=1)[:, None]
            losses = ops.softplus(ops.where(positives, push - logits + self.margin, 0.0))
        return self.mean(weights * losses, positives)

    def mean(self, losses, positives):
        """Mean over the anchors with positives of the mean over the positives of each."""
        counts = ops.sum(ops.cast(positives, losses.dtype), axis=1)
        means = pairwise.masked_sum(losses, positives, axis=1) / ops.maximum(counts, 1.0)
        return pairwise.masked_mean(means, counts > 0)


def _positive_weights(batch):
    """The weights of positive pairs, 1 or the overlap of several labels; the mask of negatives."""
    dtype = batch.embeddings.dtype
    if len(batch.labels.shape) == 1:
        return ops.cast(batch.positives, dtype), batch.negatives
    labels, _, self_positions = batch.references
    overlap = pairwise.label_overlap(batch.labels, labels, dtype)
    is_other = pairwise.is_other(labels, self_positions)
    return ops.where(is_other, overlap, 0.0), (overlap <= 0) & is_other
