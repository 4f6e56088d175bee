from keras import ops

from tfdml import pairwise
from tfdml.checks import check, check_bool, check_one_of, check_positive
from tfdml.losses.base import PairLoss, register


@register("contrastive")
class ContrastiveLoss(PairLoss):
    """Contrastive loss: pulls positive pairs together, pushes negative pairs beyond a margin.

    With squared distances D, over the unordered pairs {i, j} of the batch selected by `pairs`:

        Σ_{same class} D[i, j]  +  Σ_{other class} max(0, margin - D[i, j])

    divided according to `average_over`.

    Args:
        margin: Distance above which a negative pair has no loss, in squared distance (0 to 4 for
            unit rows), or in distance if not `squared`; > 0.
        squared: Whether D is the squared Euclidean distance.
        pairs: `"all"`; or `"halves"`, row i of the first half of the batch with row i of the
            second, as `pipelines.pair_batches` orders them without `hard_neighbours`.
        squared_hinge: Whether the loss of a negative pair is max(0, margin - √D)², with the margin
            in distance. Requires `squared`.
        average_over: `"active"` (pairs with a loss above 0: the value may rise while easy pairs
            leave it), `"pairs"` (all selected), `"batch"` (rows) or `"sum"` (no division).

    Source:
        Li, Yao, Chao, Chen, Mei. Density adaptivity in deep metric learning. 2019, eq. 2.
        Yuan, Yang, Zhang. Hard-aware deeply cascaded embedding. ICCV 2017, eqs. 9-11.
        Song, Xiang, Jegelka, Savarese. Lifted structured feature embedding. CVPR 2016, eq. 1:
        `pairs="halves"`, `squared_hinge=True`, `average_over="batch"`, `normalize=False`.
        Differs: averages, where the papers print sums; `average_over="sum"` gives the sum. Squared
        distances, as in HDC's code; its paper has `squared=False`.

    Example:
        >>> loss = ContrastiveLoss(margin=1.0)
        >>> print(float(loss(np.array([0, 0, 1]), np.array([[1., 0.], [0., 1.], [0., 1.]]))))
        1.5
    """

    def __init__(
        self,
        *,
        margin=1.0,
        squared=True,
        pairs="all",
        squared_hinge=False,
        average_over="active",
        normalize=True,
        name="contrastive",
    ):
        super().__init__(normalize=normalize, name=name)
        [self.margin] = check_positive(margin=margin)
        self.squared, self.squared_hinge = check_bool(squared=squared, squared_hinge=squared_hinge)
        expectation = "`squared_hinge` requires squared=True"
        check(squared or not squared_hinge, expectation, squared_hinge=squared_hinge)
        [self.pairs] = check_one_of(("all", "halves"), pairs=pairs)
        self.takes_references = pairs == "all"
        means = ("pairs", "active", "batch", "sum")
        [self.average_over] = check_one_of(means, average_over=average_over)

    def call(self, batch):
        distances = batch.squared_distances if self.squared else batch.distances
        if self.squared_hinge:
            pushes = ops.square(ops.relu(self.margin - batch.distances))
        else:
            pushes = ops.relu(self.margin - distances)
        losses = ops.where(batch.positives, distances, pushes)
        pairs = batch.positives | batch.negatives
        if self.pairs == "halves":
            pairs = pairs & _halves(batch.labels)
        if self.average_over == "pairs":
            return pairwise.masked_mean(losses, pairs)
        if self.average_over == "active":
            return pairwise.masked_mean(losses, pairs & ~(losses <= 0))
        # A pair of two anchors occurs twice, with either as the reference.
        labels, _, self_positions = batch.references
        others = ops.all(pairwise.is_other(labels, self_positions), axis=0)
        total = pairwise.masked_sum(ops.where(others[None, :], losses, losses / 2.0), pairs)
        rows = ops.cast(ops.shape(batch.labels)[0], total.dtype)
        return total / rows if self.average_over == "batch" else total


def _halves(rows):
    """(n, n) booleans: the same place in the other half. `rows` is (n, ...)."""
    half = ops.shape(rows)[0] // 2
    index = ops.arange(ops.shape(rows)[0])
    opposite = ops.abs(index[:, None] - index[None, :]) == half
    return opposite & (ops.maximum(index[:, None], index[None, :]) < 2 * half)
