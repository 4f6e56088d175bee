import keras

from tfdml.checks import check_not_negative, check_positive
from tfdml.losses._proxies import MarginSoftmaxLoss


@keras.saving.register_keras_serializable("tfdml")
class CosFaceLoss(MarginSoftmaxLoss):
    """Softmax over cosines, with a margin on the cosine of the own class.

    With c the cosines of row i and the proxies, and y the class of row i:

        loss = mean over rows i of log(exp(t) + Σ_{c != y} exp(scale c[i, c])) - t
        t = scale (c[i, y] - margin)

    Of several centers of a class the most similar counts.

    Args:
        num_classes: Number of classes, C, with ids 0 to `num_classes - 1`; None to count those of
            the training images in `prepare`, as `train.py` does.
        scale: Inverse temperature of the cosines; > 0. Published: 64 for faces;
            fine-grained images with pretrained networks take 20 to 32.
        margin: Of the cosine; >= 0. Published: 0.35.
        centers: Centers of each class, of which the most similar counts; 1 as published.
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
        labels: (batch,) integers, one class id per row, from 0 to `num_classes - 1`.
        embeddings: (batch, dim) floats; made unit length.
        Returns a scalar float32, >= 0.

    Raises:
        TypeError: If `labels` are not integers, `embeddings` not floats or an option has a wrong
            type.
        ValueError: If the shapes disagree, an option is out of range, the number of classes is not
            known, labels are an array with an id that is not one of the classes; or by `compile`
            of a plain `keras.Model`, which would leave the proxies untrained.

    Source:
        Wang et al. CosFace: large margin cosine loss for deep face recognition. CVPR 2018, eq. 4.
        Deng et al. Sub-center ArcFace. ECCV 2020: the centers.
        Differs: the proxies start at the centred class means.

    Example:
        >>> loss = CosFaceLoss(num_classes=2, scale=1.0, initializer="identity")
        >>> rows = np.array([[1., 0.], [0., 1.], [0.6, 0.8]])
        >>> print(round(float(loss(np.array([0, 1, 0]), rows)), 4))
        0.6152
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
        super().__init__(num_classes, centers, initializer, proxy_multiplier, name)
        check_not_negative(margin=margin)
        check_positive(scale=scale)
        self.scale = float(scale)
        self.margin = float(margin)

    def penalized(self, cosines):
        return cosines - self.margin
