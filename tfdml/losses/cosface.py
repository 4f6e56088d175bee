from tfdml.losses.base import register
from tfdml.losses.proxies import MarginSoftmaxLoss


@register("cosface")
class CosFaceLoss(MarginSoftmaxLoss):
    """Softmax over cosines, with a margin on the cosine of the own class.

    With c the cosines of row i and the proxies, and y the class of row i:

        loss = mean over rows i of log(exp(t) + Σ_{c != y} exp(scale c[i, c])) - t
        t = scale (c[i, y] - margin)

    Of several centers of a class the most similar counts.

    Args:
        scale: Inverse temperature of the cosines; > 0. Published: 64 for faces.
        margin: Of the cosine; >= 0. Published: 0.35.
        centers: Centers of each class, of which the most similar counts; 1 as published.
        initializer: As for `ProxyLoss`; the published deviation is 0.01.

    Source:
        Wang et al. CosFace. CVPR 2018, eq. 4.
        Deng et al. Sub-center ArcFace. ECCV 2020: the centers.
        Differs: the proxies start at the centred class means.
    """

    def __init__(
        self,
        *,
        num_classes=None,
        scale=64.0,
        margin=0.35,
        centers=1,
        initializer="centred_class_means",
        proxy_multiplier=None,
        name="cosface",
    ):
        super().__init__(num_classes, centers, initializer, proxy_multiplier, name, scale, margin)

    def penalized(self, cosines):
        return cosines - self.margin
