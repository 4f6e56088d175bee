import keras
from keras import ops

from tfdml import pairwise
from tfdml.checks import check_not_negative, check_positive
from tfdml.losses.base import register
from tfdml.losses.proxies import ProxyLoss, cross_entropy, target_mask


@register("soft_triple")
class SoftTripleLoss(ProxyLoss):
    """Softmax over classes of several centers, which merge where a class has fewer modes.

    With w the centers of classes, and x · w the cosines of row i, the similarity to class c is

        S[i, c] = Σ_k softmax_k(x_i · w[c, k] / gamma) x_i · w[c, k]

    and with y the class of row i, C classes and K centers:

        loss = mean over rows i of log(exp(t) + Σ_{c != y} exp(scale S[i, c])) - t
             + weight / (C K (K - 1)) * Σ_c Σ_{k < l} √(2 + 1e-5 - 2 w[c, k] · w[c, l])
        t = scale (S[i, y] - margin)

    Args:
        centers: Centers of each class, K; >= 1.
        scale: Inverse temperature of the cosines; > 0. Published: 20.
        gamma: Temperature of the softmax over centers; > 0.
        margin: Of the similarity; >= 0.
        weight: Of the distances between centers; >= 0.
        initializer: As for `ProxyLoss`; published uniform in ±1 / √(C K).
        proxy_multiplier: As for `ProxyLoss`, but None is 100 on top of pretrained weights.

    Source:
        Qian, Shang, Sun, Hu, Li, Jin. SoftTriple loss. ICCV 2019, eqs. 6 and 9; 1e-5 below the root
        and the number of ordered pairs are those of their code.
        Differs: the proxies start at the centred class means.
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
        self.scale, self.gamma = check_positive(scale=scale, gamma=gamma)
        self.margin, self.weight = check_not_negative(margin=margin, weight=weight)

    def published_initializer(self, num_classes):
        bound = (num_classes * self.centers) ** -0.5
        return keras.initializers.RandomUniform(-bound, bound)

    def call(self, batch):
        value = super().call(batch)
        return value + self.weight * self._spread(value.dtype)

    def row_losses(self, labels, cosines):
        if self.centers > 1:
            cosines = self._similarities(cosines)
        own = target_mask(labels, cosines)
        return cross_entropy(labels, self.scale * ops.where(own, cosines - self.margin, cosines))

    def _similarities(self, cosines):
        """S, (n, num_classes), with its slopes computed here, to hold fewer arrays."""
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
