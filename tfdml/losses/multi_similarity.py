from keras import ops

from tfdml import pairwise
from tfdml.checks import check, check_finite, check_not_negative, check_positive
from tfdml.losses.base import PairLoss, register


@register("multi_similarity")
class MultiSimilarityLoss(PairLoss):
    """Pulls and pushes the informative pairs of each row, weighted by how hard they are.

    With s the cosine similarities, and P and N the positives and negatives of row i that the miner
    keeps:

        loss = mean over i of log(1 + Σ_{p in P} exp(-alpha (s[i, p] - threshold))) / alpha
                            + log(1 + Σ_{n in N} exp(beta (s[i, n] - threshold))) / beta

    The miner keeps a negative that is more similar than the least similar positive, and a positive
    that is less similar than the most similar negative, both up to `epsilon`.

    Args:
        alpha: Inverse temperature of the positives; > 0. Published: 2.
        beta: Inverse temperature of the negatives; > 0. Published: 50; the authors' code: 40.
        threshold: Cosine at which pairs begin to cost, λ; -1 to 1.
        epsilon: Slack of the miner in cosine, >= 0; None to keep all pairs.

    Source:
        Wang, Han, Huang, Dong, Scott. Multi-similarity loss. CVPR 2019, eqs. 11, 13 and 15.
        Differs: the threshold is that of the authors' code, 0.5, where the paper prints 1, with
        which negatives hardly count; a row without positives or negatives keeps nothing.
    """

    def __init__(
        self,
        *,
        alpha=2.0,
        beta=50.0,
        threshold=0.5,
        epsilon=0.1,
        normalize=True,
        name="multi_similarity",
    ):
        super().__init__(normalize=normalize, name=name)
        self.alpha, self.beta = check_positive(alpha=alpha, beta=beta)
        [self.threshold] = check_finite(threshold=threshold)
        check(-1 <= threshold <= 1, "`threshold` must be from -1 to 1", threshold=threshold)
        self.epsilon = epsilon
        if epsilon is not None:
            [self.epsilon] = check_not_negative(epsilon=epsilon)

    def call(self, batch):
        cosines, positives, negatives = batch.cosines, batch.positives, batch.negatives
        if self.epsilon is not None:
            fixed = ops.stop_gradient(cosines)
            lowest = pairwise.masked_min(fixed, positives, axis=1) - self.epsilon
            highest = pairwise.masked_max(fixed, negatives, axis=1) + self.epsilon
            negatives = negatives & (fixed > lowest[:, None])
            positives = positives & (fixed < highest[:, None])
        pull = pairwise.masked_logsumexp(-self.alpha * cosines, positives, axis=1)
        push = pairwise.masked_logsumexp(self.beta * cosines, negatives, axis=1)
        pull, push = pull + self.alpha * self.threshold, push - self.beta * self.threshold
        return pairwise.mean(ops.softplus(pull) / self.alpha + ops.softplus(push) / self.beta)
