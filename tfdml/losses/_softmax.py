"""Softmax of each positive pair against the other pairs of its anchor, as in SupCon."""

from keras import ops

from tfdml import pairwise
from tfdml.checks import check_not_negative, check_positive
from tfdml.losses.base import PairLoss


def pair_losses(logits, positives, negatives, margin, positives_repel):
    """Cross-entropy of each positive pair among the pairs of its anchor.

    With z the logits:

        loss[i, p] = log(exp(z[i, p] - margin) + Σ_{n in N(i)} exp(z[i, n])) - (z[i, p] - margin)

    or, with `positives_repel`, with the sum of exp(z[i, j] - margin) over all positives j instead
    of the first term.

    Args:
        logits: (n, m) floats.
        positives: (n, m) booleans.
        negatives: (n, m) booleans.
        margin: Advantage that a positive must have, in logits.
        positives_repel: Whether all positives of an anchor are in the denominator.

    Returns:
        (n, m) floats; only those where `positives` have a meaning.
    """
    if positives_repel:
        shifted = ops.where(positives, logits - margin, logits) if margin else logits
        return pairwise.masked_logsumexp(shifted, positives | negatives, axis=1)[:, None] - shifted
    push = pairwise.masked_logsumexp(logits, negatives, axis=1)[:, None]
    return ops.softplus(ops.where(positives, push - logits + margin, 0.0))


class SoftmaxLoss(PairLoss):
    """Base class of `SupConLoss`, `SINCERELoss` and `NTXentLoss`.

    A subclass implements `mean(losses, positives)`.
    """

    positives_repel = False

    def __init__(self, *, temperature, margin, normalize, name):
        super().__init__(normalize=normalize, name=name)
        check_positive(temperature=temperature)
        check_not_negative(margin=margin)
        self.temperature = float(temperature)
        self.margin = float(margin)

    def call_against(
        self, labels, embeddings, reference_labels, reference_embeddings, self_positions
    ):
        logits = embeddings @ ops.transpose(reference_embeddings) / self.temperature
        positives, negatives = pairwise.masks_against(labels, reference_labels, self_positions)
        losses = pair_losses(logits, positives, negatives, self.margin, self.positives_repel)
        return self.mean(losses, positives)


def mean_over_anchors(losses, positives):
    """Mean over the anchors with positives of the mean over the positives of each."""
    counts = ops.sum(ops.cast(positives, losses.dtype), axis=1)
    of_anchor = pairwise.masked_sum(losses, positives, axis=1) / ops.maximum(counts, 1.0)
    return pairwise.masked_mean(of_anchor, counts > 0)
