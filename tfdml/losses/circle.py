from keras import ops

from tfdml import pairwise
from tfdml.checks import check_finite, check_positive
from tfdml.losses.base import PairLoss, register


@register("circle", published={"scale": 80.0})
class CircleLoss(PairLoss):
    """Pulls and pushes each pair by its distance from an optimum of its own.

    With s the cosine similarities, and the weights a[i, p] = max(0, 1 + margin - s[i, p]) and
    a[i, n] = max(0, s[i, n] + margin), through which no gradient flows:

        loss = mean over anchors i of log(1 + Σ_n exp(scale a[i, n] (s[i, n] - margin))
                                              * Σ_p exp(-scale a[i, p] (s[i, p] - 1 + margin)))

    Anchors without a positive or without a negative do not count.

    Args:
        margin: Relaxation m of the optima 1 and 0, in cosine. Published: 0.25 for faces and
            re-identification, 0.4 for fine-grained images.
        scale: Inverse temperature γ; > 0. Published: 256, 128 and 80, in the same order;
            `preset="published"` has 80.

    Source:
        Sun et al. Circle loss. CVPR 2020, eqs. 5 to 8.
        Differs from `keras.losses.Circle`: labels stay integers of any size, and rows without a
        positive or a negative do not count.
    """

    def __init__(self, *, margin=0.4, scale=16.0, name="circle"):
        super().__init__(normalize=True, name=name)
        [self.margin] = check_finite(margin=margin)
        [self.scale] = check_positive(scale=scale)

    def call(self, batch):
        cosines, positives, negatives = batch.cosines, batch.positives, batch.negatives
        fixed = ops.stop_gradient(cosines)
        pulls = ops.relu(1.0 + self.margin - fixed) * (1.0 - self.margin - cosines)
        pushes = ops.relu(fixed + self.margin) * (cosines - self.margin)
        pull = pairwise.masked_logsumexp(self.scale * pulls, positives, axis=1)
        push = pairwise.masked_logsumexp(self.scale * pushes, negatives, axis=1)
        valid = ops.any(positives, axis=1) & ops.any(negatives, axis=1)
        return pairwise.masked_mean(ops.softplus(ops.where(valid, pull + push, 0.0)), valid)
