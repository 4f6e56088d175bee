import keras
from keras import ops

from tfdml import pairwise
from tfdml.checks import check_not_negative, check_positive
from tfdml.losses._proxies import ProxyLoss, cross_entropy, target_mask


@keras.saving.register_keras_serializable("tfdml")
class SoftTripleLoss(ProxyLoss):
    """Softmax over classes of several centers, which merge where a class has fewer modes.

    With w the centers of classes, and x · w the cosines of row i, the similarity to class c is

        S[i, c] = Σ_k softmax_k(x_i · w[c, k] / gamma) x_i · w[c, k]

    and with y the class of row i, C classes and K centers:

        loss = mean over rows i of log(exp(t) + Σ_{c != y} exp(scale S[i, c])) - t
             + weight / (C K (K - 1)) * Σ_c Σ_{k < l} √(2 + 1e-5 - 2 w[c, k] · w[c, l])
        t = scale (S[i, y] - margin)

    Args:
        num_classes: Number of classes, C, with ids 0 to `num_classes - 1`; None to count those of
            the training images in `prepare`, as `train.py` does.
        centers: Centers of each class, K; >= 1.
        scale: Inverse temperature of the cosines; > 0. Published: 20.
        gamma: Temperature of the softmax over centers; > 0.
        margin: Of the similarity; >= 0.
        weight: Of the distances between centers; >= 0.
        initializer: Start of the proxies: `"centred_class_means"`, the directions of the class
            means from the mean of all classes, or `"class_means"`, those from the origin, both
            measured by `prepare`; before, or if None, uniform in ±1 / √(C K). Or a Keras
            initializer.
        proxy_multiplier: Factor of the learning rate of the proxies, applied by `train.py`; if
            None, 100 on top of pretrained weights, as published, else that of other new
            layers.
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
        Qian, Shang, Sun, Hu, Li, Jin. SoftTriple loss: deep metric learning without triplet
        sampling. ICCV 2019, eqs. 6 and 9.
        Differs: 1e-5 below the root, as in the authors' code, keeps its slope finite at equal
        centers; the sum over unordered pairs is divided by the number of ordered ones, as there;
        the proxies start at the centred class means.

    Example:
        >>> loss = SoftTripleLoss(num_classes=2, centers=1, scale=1.0, initializer="identity")
        >>> rows = np.array([[1., 0.], [0., 1.], [0.6, 0.8]])
        >>> print(round(float(loss(np.array([0, 1, 0]), rows)), 4))
        0.4785
    """

    suggested_multiplier = 100.0

    def __init__(
        self,
        *,
        num_classes=None,
        centers=10,
        scale=20.0,
        gamma=0.1,
        margin=0.01,
        weight=0.2,
        initializer="centred_class_means",
        proxy_multiplier=None,
        name="soft_triple",
    ):
        super().__init__(num_classes, centers, initializer, proxy_multiplier, name)
        check_positive(gamma=gamma, scale=scale)
        check_not_negative(margin=margin, weight=weight)
        self.scale = float(scale)
        self.gamma = float(gamma)
        self.margin = float(margin)
        self.weight = float(weight)

    def published_initializer(self, num_classes):
        bound = (num_classes * self.centers) ** -0.5
        return keras.initializers.RandomUniform(-bound, bound)

    def call(self, labels, embeddings, training=False, sample_weight=None):
        value = super().call(labels, embeddings, training, sample_weight)
        return value + self.weight * self._spread(value.dtype)

    def of_cosines(self, labels, cosines):
        if self.centers > 1:
            cosines = self._similarities(cosines)
        own = target_mask(labels, cosines)
        logits = self.scale * ops.where(own, cosines - self.margin, cosines)
        return cross_entropy(labels, logits)

    def _similarities(self, cosines):
        """S, (n, num_classes), from the cosines of all centers.

        The slopes of S in the cosines are computed here, to hold fewer arrays of the shape of the
        cosines than automatic differentiation does.
        """
        fixed = ops.stop_gradient(cosines)
        # Several times as fast as `ops.softmax`, which is slow over a short axis.
        shares = ops.exp((fixed - ops.max(fixed, axis=2, keepdims=True)) / self.gamma)
        shares = shares / ops.sum(shares, axis=2, keepdims=True)
        values = ops.sum(shares * fixed, axis=2)
        slopes = shares * (1.0 + (fixed - values[:, :, None]) / self.gamma)
        linear = ops.sum(slopes * cosines, axis=2)
        return ops.stop_gradient(values - linear) + linear

    def _spread(self, dtype):
        """Mean distance of the centers of a class, halved."""
        if self.centers == 1 or not self.weight:
            return 0.0
        centers = self.layer.directions(dtype)
        products = ops.einsum("ckd,cld->ckl", centers, centers)
        index = ops.arange(self.centers)
        upper = index[:, None] < index[None, :]
        # Rounding may bring the product of equal centers above 1.
        distances = pairwise.root(ops.relu(2.0 + 1e-5 - 2.0 * products))
        ordered = centers.shape[0] * self.centers * (self.centers - 1)
        return pairwise.masked_sum(distances, upper) / ordered
