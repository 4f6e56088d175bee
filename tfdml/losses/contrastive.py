import keras
from keras import ops

from tfdml import pairwise
from tfdml.checks import check_one_of, check_positive, check_type
from tfdml.losses.base import MetricLoss


@keras.saving.register_keras_serializable("tfdml")
class ContrastiveLoss(MetricLoss):
    """Pulls the pairs of a class together and pushes other pairs apart, up to a margin.

    With squared distances D, over all unordered pairs {i, j} of the batch:

        Σ_{same class} D[i, j]  +  Σ_{other class} max(0, margin - D[i, j])

    divided by what `average_over` names. Rows of one class meet in one point when it is 0.

    Args:
        margin: Distance from which on a negative pair costs nothing, in squared distance (0 to 4
            for unit rows), or in distance if not `squared`; > 0.
        squared: Whether D is the squared Euclidean distance.
        average_over: `"pairs"` (all pairs), `"active"` (pairs with a loss above 0), `"batch"`
            (rows: the balance that density adaptivity needs) or `"sum"` (divides by nothing).
        normalize: Whether rows are scaled to unit length first.
        name: Name of the loss in logs.

    Call:
        labels: (batch,) integers, one class id per row.
        embeddings: (batch, dim) floats; made unit length unless `normalize=False`.
        Returns a scalar float32, >= 0; 0 when the batch holds a single row.

    Raises:
        TypeError: If `labels` are not integers or `embeddings` not floats.
        ValueError: If the shapes disagree or an option is out of range.

    Source:
        Li, Yao, Chao, Chen, Mei. Density adaptivity in deep metric learning. 2019, eq. 1.
        Yuan, Yang, Zhang. Hard-aware deeply cascaded embedding. ICCV 2017, eqs. 9-11.
        Differs: averages, where the papers print sums; `average_over="sum"` gives the sum.

    Example:
        >>> loss = ContrastiveLoss(margin=1.0)
        >>> print(float(loss(np.array([0, 0, 1]), np.array([[1., 0.], [0., 1.], [0., 1.]]))))
        1.0
    """

    options = ("margin", "squared", "average_over", "normalize")

    def __init__(
        self,
        *,
        margin=1.0,
        squared=True,
        average_over="pairs",
        normalize=True,
        name="contrastive",
    ):
        super().__init__(normalize=normalize, name=name)
        check_positive(margin=margin)
        check_type(isinstance(squared, bool), "`squared` must be a bool", squared=squared)
        check_one_of(("pairs", "active", "batch", "sum"), average_over=average_over)
        self.margin = float(margin)
        self.squared = squared
        self.average_over = average_over

    def call(self, labels, embeddings):
        distance = pairwise.squared_distances if self.squared else pairwise.distances
        distances = distance(embeddings)
        losses = ops.where(
            pairwise.positive_mask(labels), distances, ops.relu(self.margin - distances)
        )
        pairs = pairwise.off_diagonal(labels)
        if self.average_over == "pairs":
            return pairwise.masked_mean(losses, pairs)
        if self.average_over == "active":
            return pairwise.masked_mean(losses, pairs & ~(losses <= 0))
        total = pairwise.masked_sum(losses, pairs) / 2.0  # each pair stands there twice
        if self.average_over == "batch":
            return total / ops.cast(ops.shape(labels)[0], total.dtype)
        return total
