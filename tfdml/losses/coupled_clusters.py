import numpy as np
from keras import ops

from tfdml import pairwise
from tfdml.checks import check_positive
from tfdml.losses.base import MetricLoss, register


@register("coupled_clusters")
class CoupledClustersLoss(MetricLoss):
    """Pulls rows to the mean of their class, closer by a margin than rows of other classes.

    With c the mean of the rows of a class and n the row of another class that is nearest to c:

        ½ Σ_{i in class} max(0, |x[i] - c|² + margin - |x[n] - c|²)

    averaged over the classes of two rows or more.

    Args:
        margin: Required difference of the two squared distances; > 0. If None, 1 with
            `normalize=True`, else 100, as the distances of raw rows are larger.

    Source:
        Liu, Tian, Yang, Pang, Huang. Deep relative distance learning. CVPR 2016.
        Differs: every class of the batch is a positive set, with all other rows as negatives, where
        the paper has one positive and one negative set; averages over classes, where it sums.
    """

    def __init__(self, *, margin=None, normalize=False, name="coupled_clusters"):
        super().__init__(normalize=normalize, name=name)
        margin = margin if margin is not None else 1.0 if normalize else 100.0
        [self.margin] = check_positive(margin=margin)

    def call(self, batch):
        rows, negatives = batch.embeddings, batch.negatives
        means, sizes = pairwise.class_means(batch.labels, rows)
        closeness = pairwise.closeness(means, rows)
        nearest = pairwise.highest(ops.where(negatives, closeness, -np.inf))
        pull = ops.sum(ops.square(rows - means), axis=1)
        push = ops.sum(ops.square(ops.take(rows, nearest, axis=0) - means), axis=1)
        contested = (sizes > 1) & ops.any(negatives, axis=1)
        losses = pairwise.masked_sum(ops.relu(pull + self.margin - push), contested) / 2.0
        classes = pairwise.masked_sum(1.0 / sizes, contested)
        return losses / ops.maximum(classes, 1.0)
