from keras import ops

from tfdml import pairwise
from tfdml.losses.base import MetricLoss, register


@register("gor", kind="regularizer")
class GlobalOrthogonalRegularizer(MetricLoss):
    """Global orthogonal regularizer: spreads rows of different classes like random directions.

    Over the negative pairs, with S their inner products, M1 = mean(S) and M2 = mean(S²):

        M1² + max(0, M2 - 1 / dim)

    The product of two random unit rows has mean 0 and mean square 1 / dim. For use with a loss, in
    `RegularizedLoss`.

    Args:
        normalize: Whether rows are scaled to unit length first.
        name: Name of the loss in logs.

    Source:
        Zhang, Yu, Kumar, Chang. Learning spread-out local feature descriptors. ICCV 2017.
        Differs: all negative pairs, where the original draws one for each row.
    """

    def __init__(self, *, normalize=True, name="gor"):
        super().__init__(normalize=normalize, name=name)

    def call(self, batch):
        mean = pairwise.masked_mean(batch.cosines, batch.negatives)
        mean_square = pairwise.masked_mean(ops.square(batch.cosines), batch.negatives)
        width = ops.cast(ops.shape(batch.embeddings)[1], mean_square.dtype)
        return ops.square(mean) + ops.relu(mean_square - 1.0 / width)
