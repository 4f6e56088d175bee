import math

from keras import ops

from tfdml import pairwise
from tfdml.checks import check, check_bool
from tfdml.losses._proxies import MarginSoftmaxLoss
from tfdml.losses.registry import register


@register("arcface")
@register("sub_center_arcface", {"centers": 3})
class ArcFaceLoss(MarginSoftmaxLoss):
    """Softmax over cosines, with a margin on the angle to the proxy of the own class.

    With c the cosines of row i and the proxies, y the class of row i and θ = arccos c[i, y]:

        loss = mean over rows i of log(exp(t) + Σ_{c != y} exp(scale c[i, c])) - t
        t = scale cos(θ + margin), or scale (cos θ - margin sin margin) for θ > π - margin

    as cos(θ + margin) rises again there. Of several centers of a class the most similar counts.

    Args:
        num_classes: Number of classes, C, with ids 0 to `num_classes - 1`; None to count those of
            the training images in `prepare`, as `train.py` does.
        scale: Inverse temperature of the cosines; > 0. Published: 64 for faces;
            fine-grained images with pretrained networks take 20 to 32.
        margin: Of the angle, in radians; 0 to below π. Published: 0.5.
        centers: Centers of each class, of which the most similar counts; 1, or 3 for
            `sub_center_arcface`.
        straight_through: Whether the gradient ignores the margin: t has the slope `scale` in
            c[i, y], and no fallback for large angles, as in insightface's code.
        initializer: Start of the proxies: `"centred_class_means"`, the directions of the class
            means from the mean of all classes, or `"class_means"`, those from the origin, both
            measured by `prepare`; before, or if None, normal with deviation 0.01. Or a Keras
            initializer.
        proxy_multiplier: Factor of the learning rate of the proxies, applied by `train.py`; if
            None, that of other new layers.
        name: Name of the loss in logs.

    Attributes:
        layer: `ClassProxies`, the proxies; None until the number of classes is known.

    Call:
        As `MetricLoss`, of unit rows and labels from 0 to `num_classes - 1`. Returns >= 0.

    Raises:
        TypeError: For wrong inputs, as `MetricLoss`, or an option of a wrong type.
        ValueError: For wrong inputs or options, or if the number of classes is not known; or by
            `compile` of a plain `keras.Model`, which would leave the proxies untrained.

    Source:
        Deng, Guo, Xue, Zafeiriou. ArcFace: additive angular margin loss for deep face recognition.
        CVPR 2019, eq. 3; the fallback is that of their first code.
        Deng et al. Sub-center ArcFace. ECCV 2020: the centers.
        Differs: the gradient is that of the formula; `straight_through=True` has that of the
        authors' present code; the proxies start at the centred class means.

    Example:
        >>> loss = ArcFaceLoss(num_classes=2, scale=1.0, initializer="identity")
        >>> rows = np.array([[1., 0.], [0., 1.], [0.6, 0.8]])
        >>> print(round(float(loss(np.array([0, 1, 0]), rows)), 4))
        0.59
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
        options = num_classes, scale, margin, centers, initializer, proxy_multiplier
        super().__init__(*options, name)
        check(margin < math.pi, "`margin` must be < π", margin=margin)
        [self.straight_through] = check_bool(straight_through=straight_through)

    def penalized(self, cosines):
        sines = pairwise.root(ops.relu(1.0 - ops.square(cosines)))
        turned = cosines * math.cos(self.margin) - sines * math.sin(self.margin)
        if self.straight_through:
            return cosines + ops.stop_gradient(turned - cosines)
        beyond = cosines < -math.cos(self.margin)
        return ops.where(beyond, cosines - self.margin * math.sin(self.margin), turned)
