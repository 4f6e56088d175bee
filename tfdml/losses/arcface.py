import math

from keras import ops

from tfdml import pairwise
from tfdml.checks import check, check_bool
from tfdml.losses.base import register
from tfdml.losses.proxies import MarginSoftmaxLoss


@register("arcface")
@register("sub_center_arcface", {"centers": 3})
class ArcFaceLoss(MarginSoftmaxLoss):
    """Softmax over cosines, with a margin on the angle to the proxy of the own class.

    With c the cosines of row i and the proxies, y the class of row i and θ = arccos c[i, y]:

        loss = mean over rows i of log(exp(t) + Σ_{c != y} exp(scale c[i, c])) - t
        t = scale cos(θ + margin), or scale (cos θ - margin sin margin) for θ > π - margin

    as cos(θ + margin) rises again there. Of several centers of a class the most similar counts.

    Args:
        scale: Inverse temperature of the cosines; > 0. Published: 64 for faces;
            fine-grained images with pretrained networks take 20 to 32.
        margin: Of the angle, in radians; 0 to below π. Published: 0.5.
        centers: Centers of each class, of which the most similar counts; 1, or 3 for
            `sub_center_arcface`.
        straight_through: Whether the gradient ignores the margin, and there is no fallback for
            large angles, as in the authors' present code.
        initializer: As for `ProxyLoss`; the published deviation is 0.01.

    Source:
        Deng, Guo, Xue, Zafeiriou. ArcFace. CVPR 2019, eq. 3; the fallback is that of their first
        code.
        Deng et al. Sub-center ArcFace. ECCV 2020: the centers.
        Differs: the gradient is that of the formula; the proxies start at the centred class means.
    """

    def __init__(
        self,
        *,
        num_classes=None,
        scale=64.0,
        margin=0.5,
        centers=1,
        straight_through=False,
        initializer="centred_class_means",
        proxy_multiplier=None,
        name="arcface",
    ):
        super().__init__(num_classes, centers, initializer, proxy_multiplier, name, scale, margin)
        check(margin < math.pi, "`margin` must be < π", margin=margin)
        [self.straight_through] = check_bool(straight_through=straight_through)

    def penalized(self, cosines):
        sines = pairwise.root(ops.relu(1.0 - ops.square(cosines)))
        turned = cosines * math.cos(self.margin) - sines * math.sin(self.margin)
        if self.straight_through:
            return cosines + ops.stop_gradient(turned - cosines)
        beyond = cosines < -math.cos(self.margin)
        return ops.where(beyond, cosines - self.margin * math.sin(self.margin), turned)
