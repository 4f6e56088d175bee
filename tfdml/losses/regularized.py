from tfdml.checks import check_positive
from tfdml.losses._wrapped import WrappedLoss
from tfdml.losses.base import register
from tfdml.losses.registry import get_regularizer, resolve


@register("regularized")
class RegularizedLoss(WrappedLoss):
    """A loss and a regularizer on the same embeddings.

        loss = base + weight * regularizer

    Args:
        base: A `MetricLoss`, or a name or a dict of a name and options for `tfdml.losses.get`, such
            as `{"name": "triplet", "margin": 0.2}`.
        regularizer: The same for `"entropy"`, `"gor"`, or `"density"` with its options.
        weight: Factor of the regularizer; > 0.

    Attributes:
        layer: The layer of the regularizer, or else of `base`; None if neither has one.
        layers: The layers of both.

    Call:
        As `base`. The regularizer gets unit rows, or if built with `normalize=False` the same rows
        as `base`. It may be negative if the regularizer is.

    Source:
        Li, Yao, Chao, Chen, Mei. Density adaptivity in deep metric learning. 2019, eq. 9.

    Example:
        >>> loss = RegularizedLoss(base="triplet", regularizer="gor", weight=0.5)
        >>> rows = np.array([[1., 0.], [0., 1.], [1., 0.]])
        >>> print(float(loss(np.array([0, 0, 1]), rows)))
        2.125
    """

    def __init__(self, *, base, regularizer, weight=1.0, name="regularized"):
        regularizer = resolve(get_regularizer, regularizer=regularizer)
        super().__init__(base, regularizer, name=name)
        self.regularizer = regularizer
        [self.weight] = check_positive(weight=weight)

    def call(self, batch):
        value = self.base.call(batch)
        return value + self.weight * self.regularizer.call(self.regularizer.scaled(batch))
