import dataclasses

import keras
from keras import ops

from tfdml import pairwise
from tfdml.checks import check_not_negative, check_positive
from tfdml.losses.base import register
from tfdml.losses.proxies import ProxyLoss, target_mask


@register("proxy_anchor")
class ProxyAnchorLoss(ProxyLoss):
    """Pulls and pushes all rows of the batch to and from each proxy, the hardest most.

    With c the cosines of the rows and the proxies, C+ the classes in the batch and C all classes:

        loss = 1 / |C+| Σ_{y in C+} log(1 + Σ_{i of class y} exp(-scale (c[i, y] - margin)))
             + 1 / C Σ_y log(1 + Σ_{i not of class y} exp(scale (c[i, y] + margin)))

    Args:
        scale: Inverse temperature of the cosines; > 0. Published: 32.
        margin: Of the cosine; >= 0. Published: 0.1.
        initializer: As for `ProxyLoss`; the published deviation is √(2 / C).
        proxy_multiplier: As for `ProxyLoss`, but None is 100 on top of pretrained weights.

    Source:
        Kim, Kim, Cho, Kwak. Proxy anchor loss for deep metric learning. CVPR 2020, eq. 4.
        Differs: the proxies start at the centred class means.
    """

    # Its terms are proxies with all rows.
    traits = dataclasses.replace(ProxyLoss.traits, takes_sample_weight=False)
    suggested_multiplier = 100.0

    def __init__(
        self,
        *,
        num_classes=None,
        scale=32.0,
        margin=0.1,
        initializer="centred_class_means",
        proxy_multiplier=None,
        name="proxy_anchor",
    ):
        super().__init__(num_classes, 1, initializer, proxy_multiplier, name)
        [self.margin] = check_not_negative(margin=margin)
        [self.scale] = check_positive(scale=scale)

    def published_initializer(self, num_classes):
        return keras.initializers.RandomNormal(stddev=(2 / num_classes) ** 0.5)

    def row_losses(self, labels, cosines):
        own = target_mask(labels, cosines)
        pulls = pairwise.masked_logsumexp(-self.scale * (cosines - self.margin), own, axis=0)
        pushes = pairwise.masked_logsumexp(self.scale * (cosines + self.margin), ~own, axis=0)
        pull = pairwise.masked_mean(ops.softplus(pulls), ops.any(own, axis=0))
        return pull + pairwise.mean(ops.softplus(pushes))
