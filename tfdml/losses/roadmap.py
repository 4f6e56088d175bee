from keras import ops

from tfdml import pairwise
from tfdml.checks import check, check_bool, check_finite, check_not_negative, check_positive
from tfdml.losses._soft_ranks import average_precision_loss, ranked_masks, soft_ranks, true_step
from tfdml.losses.base import PairLoss, register


@register("roadmap")
class ROADMAPLoss(PairLoss):
    """Robust and decomposable average precision: SupAP with a calibration of the similarities.

    SupAP is one minus the average precision, as in `SmoothAPLoss`, with the true ranks among the
    positives, and with ranks among the negatives that are never too small: the step of a difference
    d = s[q, n] - s[q, p] is

        σ(d)                                for d < 0
        0.5 + σ(d)                          for 0 <= d <= margin
        slope * (d - margin) + offset       for d > margin

    with σ(x) = 1 / (1 + exp(-x / temperature)). The calibration averages max(0, positive_target -
    s) over the positives below their target and max(0, s - negative_target) over the negatives
    above theirs:

        loss = SupAP + calibration * (positive part + negative part)

    Args:
        temperature: Of σ, in cosine; > 0.
        slope: Slope of the step beyond the margin, ρ; > 0.
        margin: Difference beyond which the step is a line, δ; >= 0, in cosine.
        offset: Value of the step at the margin; > 0.
        calibration: Weight of the calibration; >= 0.
        positive_target: Cosine from which positives cost nothing.
        negative_target: Cosine up to which negatives cost nothing.
        rank_self: Whether a query is a positive of itself, as in the authors' code.

    Source:
        Ramzi, Thome, Rambour, Audebert, Bitot. Robust and decomposable average precision. NeurIPS
        2021, eqs. 4 to 7.
        Differs: the offset is that of the authors' code, 1.44, not that where the step meets the
        line, 0.5 + σ(margin); both terms have the weight 1, as in their settings. A query is not a
        positive of itself; with `rank_self` it is.
    """

    def __init__(
        self,
        *,
        temperature=0.01,
        slope=100.0,
        margin=0.05,
        offset=1.44,
        calibration=1.0,
        positive_target=0.9,
        negative_target=0.6,
        rank_self=False,
        normalize=True,
        name="roadmap",
    ):
        super().__init__(normalize=normalize, name=name)
        steps = check_positive(temperature=temperature, slope=slope, offset=offset)
        self.temperature, self.slope, self.offset = steps
        self.margin, self.calibration = check_not_negative(margin=margin, calibration=calibration)
        targets = {"positive_target": positive_target, "negative_target": negative_target}
        self.positive_target, self.negative_target = check_finite(**targets)
        for target, value in targets.items():
            check(-1 <= value <= 1, f"`{target}` must be from -1 to 1", **{target: value})
        [self.rank_self] = check_bool(rank_self=rank_self)

    def call(self, batch):
        cosines = batch.cosines
        positives, negatives = ranked_masks(batch, self.rank_self)
        before = 1.0 + soft_ranks(cosines, positives, positives, true_step)
        ranks = before + soft_ranks(cosines, positives, negatives, self._step)
        loss = average_precision_loss(before, ranks, positives)
        if not self.calibration:
            return loss
        far = batch.positives & (cosines < self.positive_target)
        near = negatives & (cosines > self.negative_target)
        pull = pairwise.masked_mean(self.positive_target - cosines, far)
        push = pairwise.masked_mean(cosines - self.negative_target, near)
        return loss + self.calibration * (pull + push)

    def _step(self, differences):
        sigmoid = ops.sigmoid(differences / self.temperature)
        slope = sigmoid * (1.0 - sigmoid) / self.temperature
        value = ops.where(differences >= 0, 0.5 + sigmoid, sigmoid)
        beyond = differences > self.margin
        line = self.slope * (differences - self.margin) + self.offset
        return ops.where(beyond, line, value), ops.where(beyond, self.slope, slope)
