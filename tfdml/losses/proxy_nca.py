import keras
from keras import ops

from tfdml import pairwise
from tfdml.checks import check_one_of, check_positive
from tfdml.losses.base import register
from tfdml.losses.proxies import ProxyLoss, cross_entropy, target_mask


@register("proxy_nca")
class ProxyNCALoss(ProxyLoss):
    """Neighbourhood component analysis of rows among proxies of classes.

    With c the cosines of row i and the proxies, and y the class of row i, `"plusplus"` is

        loss = mean over rows i of log Σ_c exp(scale c[i, c]) - scale c[i, y]

    and `"classic"` the same with the sum over c != y alone, so that it may be negative. As
    |x - p|² = 2 - 2 c for unit rows, a scale of 18 is a factor of 9 on squared distances.

    Args:
        scale: Inverse temperature of the cosines; > 0. Published: 18, 2 for `"classic"`.
        variant: `"plusplus"` or `"classic"`.
        initializer: As for `ProxyLoss`; the published deviation is 1 / 8.
        proxy_multiplier: As for `ProxyLoss`, but None is 100 on top of pretrained weights.

    Source:
        Movshovitz-Attias et al. No fuss distance metric learning. ICCV 2017, eq. 4 (`"classic"`).
        Teh, DeVries, Taylor. ProxyNCA++. ECCV 2020, eq. 6 (`"plusplus"`).
        Differs: the proxies start at the class means.
    """

    is_softmax = True
    suggested_multiplier = 100.0

    def __init__(
        self,
        *,
        num_classes=None,
        scale=18.0,
        variant="plusplus",
        initializer="class_means",
        proxy_multiplier=None,
        name="proxy_nca",
    ):
        super().__init__(num_classes, 1, initializer, proxy_multiplier, name)
        [self.variant] = check_one_of(("plusplus", "classic"), variant=variant)
        [self.scale] = check_positive(scale=scale)

    def published_initializer(self, num_classes):
        return keras.initializers.RandomNormal(stddev=1 / 8)

    def row_losses(self, labels, cosines):
        logits = self.scale * cosines
        if self.variant == "plusplus":
            return cross_entropy(labels, logits)
        targets = target_mask(labels, cosines)
        others = pairwise.masked_logsumexp(logits, ~targets, axis=1)
        alone = ops.shape(cosines)[1] < 2  # one class has no others
        return ops.where(alone, 0.0, others - pairwise.masked_sum(logits, targets, axis=1))
