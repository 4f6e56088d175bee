from tfdml.checks import check_bool, check_positive
from tfdml.losses._soft_ranks import average_precision_loss, ranked_masks, sigmoid_step, soft_ranks
from tfdml.losses.base import PairLoss, register


@register("smooth_ap")
class SmoothAPLoss(PairLoss):
    """One minus the average precision of each row as a query, with smooth ranks.

    With s the cosine similarities and σ(x) = 1 / (1 + exp(-x / temperature)), the ranks of a
    positive p of query q, among the positives P and among the positives and the negatives N, are

        r+[q, p] = 1 + Σ_{j in P, j != p} σ(s[q, j] - s[q, p])
        r[q, p]  = r+[q, p] + Σ_{n in N} σ(s[q, n] - s[q, p])
        loss     = 1 - mean over queries q of the mean over positives p of r+[q, p] / r[q, p]

    Queries without a positive do not count; with `rank_self` every query has one.

    Args:
        temperature: Of the smooth step, in cosine; > 0.
        rank_self: Whether a query is a positive of itself, as in the authors' code.

    Call:
        As `MetricLoss`: from 0 to below 1; 0 when no query has a positive.

    Source:
        Brown, Xie, Kalogeiton, Zisserman. Smooth-AP. ECCV 2020, eqs. 4 to 6.
        Differs: a query is not a positive of itself, as in retrieval; with `rank_self` it is.
    """

    def __init__(self, *, temperature=0.01, rank_self=False, normalize=True, name="smooth_ap"):
        super().__init__(normalize=normalize, name=name)
        [self.temperature] = check_positive(temperature=temperature)
        [self.rank_self] = check_bool(rank_self=rank_self)

    def call(self, batch):
        positives, negatives = ranked_masks(batch, self.rank_self)
        step = sigmoid_step(self.temperature)
        before = 1.0 + soft_ranks(batch.cosines, positives, positives, step)
        ranks = before + soft_ranks(batch.cosines, positives, negatives, step)
        return average_precision_loss(before, ranks, positives)
