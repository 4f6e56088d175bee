from keras import ops

from tfdml import pairwise
from tfdml.checks import check_finite, check_one_of, check_positive
from tfdml.losses.base import MetricLoss, register


@register("entropy", kind="regularizer")
class EntropyRegularizer(MetricLoss):
    """Entropy regularizer: the negative entropy of the batch.

    With squared distances D, over all unordered pairs {i, j}:

        "pairs":  - mean H(p[i, j]),  p[i, j] = sigmoid(threshold - D[i, j])
        "parzen": log( mean_{i, j} exp(-D[i, j] / (4 bandwidth²)) ), with i = j

    H is the binary entropy. The first pulls every distance towards the threshold. The second,
    Rényi's entropy of a Gaussian kernel density estimate, spreads all rows. For use with a loss, in
    `RegularizedLoss`.

    Args:
        of: `"pairs"`, the prediction whether two rows are of one class; or `"parzen"`, the density
            of the rows.
        threshold: Squared distance at which both answers are equally likely.
        bandwidth: Standard deviation of the Gaussian on each row, in distance; > 0.

    Call:
        As `MetricLoss`; labels are not used. Returns <= 0: above -0.7 for pairs.

    Source:
        Niu, Dai, Yamada, Sugiyama. Semi-supervised metric learning via entropy. ICML 2012.
        Li, Yao, Chao, Chen, Mei. Density adaptivity in deep metric learning. 2019, section IV,
        which compares with it without a formula: the two here are the two possible readings.
    """

    def __init__(self, *, of="pairs", threshold=1.0, bandwidth=0.5, normalize=True, name="entropy"):
        super().__init__(normalize=normalize, name=name)
        [self.of] = check_one_of(("pairs", "parzen"), of=of)
        [self.threshold] = check_finite(threshold=threshold)
        [self.bandwidth] = check_positive(bandwidth=bandwidth)

    def call(self, batch):
        distances = batch.squared_distances
        if self.of == "parzen":
            nearness = -distances / (4.0 * self.bandwidth**2)
            rows = ops.cast(ops.shape(distances)[0], distances.dtype)
            return ops.logsumexp(nearness) - 2.0 * ops.log(rows)
        logits = self.threshold - distances
        entropies = ops.softplus(logits) - logits * ops.sigmoid(logits)
        return -pairwise.masked_mean(entropies, pairwise.off_diagonal(distances))
