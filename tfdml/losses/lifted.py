from keras import ops

from tfdml import pairwise
from tfdml.checks import check_one_of, check_positive
from tfdml.losses.base import PairLoss, register


@register("lifted", published={"margin": 1.0})
class LiftedStructuredLoss(PairLoss):
    """Lifted structured loss: each positive pair against all negatives of both its rows.

    With distances D (not squared), over the unordered positive pairs P of the batch:

        J[i, j] = log( Σ_{k not in class} exp(margin - D[i, k])
                     + Σ_{l not in class} exp(margin - D[j, l]) ) + D[i, j]
        loss    = 1 / (2 |P|) Σ_{(i, j) in P} max(0, J[i, j])²

    Every negative of the batch contributes, the nearest ones most.

    Args:
        margin: Margin between negatives and positives, in distance; > 0. If None, 1 with
            `normalize=True`, else 30, as the distances of raw rows are larger. Published: 1,
            `preset="published"`.
        variant: `"smooth"`, the log-sum-exp above; `"max"`, the nested maximum of eq. 3,
            `J = max(max_k(margin - D[i, k]), max_l(margin - D[j, l])) + D[i, j]`; or `"sum"`, the
            same with the outer maximum replaced by a plus (the paper's footnote 1).
        normalize: Whether rows are scaled to unit length first. The paper trains and tests on
            raw rows.

    Source:
        Song, Xiang, Jegelka, Savarese. Lifted structured feature embedding. CVPR 2016, eqs. 3, 4.
        Differs: a batch without a positive pair has loss 0, and the distance of equal rows has the
        gradient 0; the paper divides by zero.
    """

    def __init__(self, *, margin=None, variant="smooth", normalize=False, name="lifted"):
        super().__init__(normalize=normalize, name=name)
        margin = margin if margin is not None else 1.0 if normalize else 30.0
        [self.margin] = check_positive(margin=margin)
        [self.variant] = check_one_of(("smooth", "max", "sum"), variant=variant)

    def call(self, batch):
        positives, negatives = batch.positives, batch.negatives
        nearness = self.margin - batch.distances
        reduce = pairwise.masked_logsumexp if self.variant == "smooth" else pairwise.masked_max
        push = reduce(nearness, negatives, axis=1)[:, None]
        contested = positives & ops.any(negatives, axis=1, keepdims=True)
        if batch.others is None:  # the distances are symmetric
            other = ops.transpose(push)
        else:
            other = reduce(nearness, negatives, axis=0)[None, :]
            contested = contested & ops.any(negatives, axis=0, keepdims=True)
        if self.variant == "smooth":
            # log(exp(a) + exp(b)); `ops.logaddexp` drops to float32 on JAX.
            pushes = push + ops.softplus(other - push)
        else:
            pushes = (ops.maximum if self.variant == "max" else ops.add)(push, other)
        lifted = ops.where(contested, pushes + batch.distances, 0.0)
        return pairwise.masked_mean(ops.square(ops.relu(lifted)), positives) / 2.0
