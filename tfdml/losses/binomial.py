from keras import ops

from tfdml import pairwise
from tfdml.checks import check_finite, check_positive
from tfdml.losses.base import PairLoss, register


@register("binomial", published={"negative_cost": 25.0})
class BinomialDevianceLoss(PairLoss):
    """Binomial deviance: logistic loss of pairs by similarity, with a cost for false matches.

    A smooth hinge on both sides of a similarity `beta`. With similarities S (cosines for unit
    rows), over all unordered pairs {i, j} of the batch:

          mean_{same class}  log(1 + exp(-alpha (S[i, j] - beta)))
        + mean_{other class} log(1 + exp(alpha negative_cost (S[i, j] - beta)))

    Args:
        alpha: Steepness; > 0.
        beta: Similarity that separates positive from negative pairs.
        negative_cost: Steepness of the pairs of other classes, as a multiple of `alpha`; > 0.
            Published: 25, `preset="published"`.

    Source:
        Yi, Lei, Li. Deep metric learning for practical person re-identification. 2014.
        Ustinova, Lempitsky. Learning deep embeddings with histogram loss. NIPS 2016, section 4,
        which compares with it and gives the defaults of `alpha` and `beta`.
    """

    def __init__(self, *, alpha=2.0, beta=0.5, negative_cost=5.0, normalize=True, name="binomial"):
        super().__init__(normalize=normalize, name=name)
        self.alpha, self.negative_cost = check_positive(alpha=alpha, negative_cost=negative_cost)
        [self.beta] = check_finite(beta=beta)

    def call(self, batch):
        gaps = batch.cosines - self.beta
        steepness = ops.where(batch.positives, -self.alpha, self.alpha * self.negative_cost)
        losses = ops.softplus(ops.cast(steepness, gaps.dtype) * gaps)
        push = pairwise.masked_mean(losses, batch.negatives)
        return pairwise.masked_mean(losses, batch.positives) + push
