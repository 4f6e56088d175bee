import keras

from tfdml.checks import check_positive
from tfdml.losses._proxies import ProxyLoss, cross_entropy


@keras.saving.register_keras_serializable("tfdml")
class NormalizedSoftmaxLoss(ProxyLoss):
    """Softmax over the cosines of a row and the proxies of all classes.

    With c the cosines of row i and the proxies, and y the class of row i:

        loss = mean over rows i of log Σ_c exp(scale c[i, c]) - scale c[i, y]

    Args:
        num_classes: Number of classes, C, with ids 0 to `num_classes - 1`; None to count those of
            the training images in `prepare`, as `train.py` does.
        scale: Inverse temperature of the cosines; > 0. Published: 20.
        initializer: Start of the proxies: `"class_means"`, the mean directions of the classes, or
            `"centred_class_means"`, those from the mean of all classes, both measured by `prepare`;
            before, or if None, uniform in ±1 / √dim. Or a Keras initializer.
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
        Zhai, Wu. Classification is a strong baseline for deep metric learning. BMVC 2019, eq. 3.
        Differs: the proxies start at the class means.

    Example:
        >>> loss = NormalizedSoftmaxLoss(num_classes=2, scale=1.0, initializer="identity")
        >>> rows = np.array([[1., 0.], [0., 1.], [0.6, 0.8]])
        >>> print(round(float(loss(np.array([0, 1, 0]), rows)), 4))
        0.4749
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
        check_positive(scale=scale)
        self.scale = float(scale)

    def published_initializer(self, num_classes):
        # Of variance 1 / (3 dim), which is that of uniform numbers in ±1 / √dim.
        return keras.initializers.VarianceScaling(1 / 3, "fan_out", "uniform")

    def of_cosines(self, labels, cosines):
        return cross_entropy(labels, self.scale * cosines)
