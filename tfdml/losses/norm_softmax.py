import keras

from tfdml.checks import check_positive
from tfdml.losses.base import register
from tfdml.losses.proxies import ProxyLoss, cross_entropy


@register("norm_softmax")
class NormalizedSoftmaxLoss(ProxyLoss):
    """Softmax over the cosines of a row and the proxies of all classes.

    With c the cosines of row i and the proxies, and y the class of row i:

        loss = mean over rows i of log Σ_c exp(scale c[i, c]) - scale c[i, y]

    Args:
        scale: Inverse temperature of the cosines; > 0. Published: 20.
        initializer: As for `ProxyLoss`; published uniform in ±1 / √dim.

    Source:
        Zhai, Wu. Classification is a strong baseline for deep metric learning. BMVC 2019, eq. 3.
        Differs: the proxies start at the class means.
    """

    is_softmax = True

    def __init__(
        self,
        *,
        num_classes=None,
        scale=20.0,
        initializer="class_means",
        proxy_multiplier=None,
        name="norm_softmax",
    ):
        super().__init__(num_classes, 1, initializer, proxy_multiplier, name)
        [self.scale] = check_positive(scale=scale)

    def published_initializer(self, num_classes):
        # Of variance 1 / (3 dim), which is that of uniform numbers in ±1 / √dim.
        return keras.initializers.VarianceScaling(1 / 3, "fan_out", "uniform")

    def row_losses(self, labels, cosines):
        return cross_entropy(labels, self.scale * cosines)
