from keras import ops

from tfdml.checks import check_integer
from tfdml.losses.base import PairLoss, register


@register("histogram")
class HistogramLoss(PairLoss):
    """Histogram loss: the probability that a negative pair is more similar than a positive one.

    The similarities of the positive pairs form a histogram p, those of the negative pairs of the
    batch a histogram n, each of sum 1. Each pair is divided between the two nearest nodes by linear
    interpolation.

        loss = Σ_r n[r] Σ_{q <= r} p[q]

    It is 0 when all positive pairs are more similar than all negative ones by two steps between
    nodes, 4 / (num_bins - 1).

    Args:
        num_bins: Nodes from similarity -1 to 1, both included; >= 2. The paper finds results
            stable from 51 to 401.
        normalize: Whether rows are scaled to unit length first. Similarities are products of
            rows, clamped to [-1, 1].

    Call:
        As `MetricLoss`: in [0, 1]; 0 when the batch holds no positive or no negative pair.

    Source:
        Ustinova, Lempitsky. Learning deep embeddings with histogram loss. NIPS 2016, section 3.
    """

    def __init__(self, *, num_bins=201, normalize=True, name="histogram"):
        super().__init__(normalize=normalize, name=name)
        [self.num_bins] = check_integer(2, num_bins=num_bins)

    def call(self, batch):
        cosines, positives, negatives = batch.cosines, batch.positives, batch.negatives
        counts = ops.sum(ops.cast(ops.stack([positives, negatives]), cosines.dtype), axis=(1, 2))
        place = (ops.clip(cosines, -1.0, 1.0) + 1.0) * ((self.num_bins - 1) / 2.0)
        lower = ops.clip(ops.floor(ops.stop_gradient(place)), 0.0, self.num_bins - 2.0)
        above = place - lower
        # The histogram of the negatives follows that of the positives; the diagonal is ignored.
        node = ops.cast(lower, "int32") + ops.where(positives, 0, self.num_bins)
        pairs = positives | negatives
        above, below = ops.where(pairs, above, 0.0), ops.where(pairs, 1.0 - above, 0.0)
        bins = 2 * self.num_bins
        totals = _sums_of_bins(below, node, bins) + _sums_of_bins(above, node + 1, bins)
        histograms = ops.reshape(totals, (2, self.num_bins)) / ops.maximum(counts, 1.0)[:, None]
        return ops.sum(histograms[1] * ops.cumsum(histograms[0]))


def _sums_of_bins(values, bins, count):
    return ops.segment_sum(ops.reshape(values, (-1,)), ops.reshape(bins, (-1,)), count)
