import dataclasses

import numpy as np
from keras import ops

from tfdml import pairwise
from tfdml.checks import check, check_bool, check_finite, check_integer, check_not_negative
from tfdml.evaluation.nearest_mean import class_density
from tfdml.layers import DensityTargets
from tfdml.losses._inputs import ids_of_images
from tfdml.losses.base import LearnedLoss, register
from tfdml.losses.regularized import RegularizedLoss


@register("density", kind="regularizer")
class DensityRegularizer(LearnedLoss):
    """Density regularizer: lets each class spread out to a learned density.

    The density of a class is the mean squared distance of its unit rows to their mean μ: the
    larger, the sparser.

        D[c] = mean_{i in c} |x[i] - μ[c]|²

    Over the C classes with two rows or more in the batch, with trained targets α and
    δ[c] = D⁰[c] ** eta, where D⁰ are the densities of the classes before training:

        loss = 1/C  Σ_c (D[c] - α[c])²  -  1/C Σ_c α[c]
             + 1/C² Σ_{c, k} (δ[k] α[c] - δ[c] α[k])²

    The first two terms reward sparse classes: without the third, a target converges to D + ½, which
    pushes D up. The third keeps the ratios of the targets near those of δ.

    Args:
        num_classes: Number of classes, ids 0 to `num_classes - 1`; None for those of
            `initial_density`.
        initial_density: (num_classes,) numbers >= 0, D⁰ by class id, such as
            `tfdml.evaluation.class_density` returns for the features of the untrained network, and
            `prepare`, so `train.py`, measures; not needed without `correlation`.
        eta: Exponent of the initial densities, 0 to 1: 0 favours equal targets.
        correlation: Whether to include the third term, the correlation of classes.
        alpha_init: Initial value of every target, in squared distance. D is at most 1.
        alpha_multiplier: Factor of the learning rate of the targets, >= 0. `train.py` passes it to
            the optimizer; otherwise build the optimizer with it, such as
            `tfdml.optimizers.Adam(1e-4, multipliers={"^density_targets/": 10})`. Adam moves a
            target by the learning rate per step: with a small one it stays where it began.

    Attributes:
        layer: `DensityTargets`, the targets. It has no variables until the first call or
            `layer.build()`.

    Call:
        As `MetricLoss`: of either sign; 0 when the batch holds no positive pair.

    Raises:
        ValueError: If initial densities are not one per class, or classes are not known.

    Source:
        Li, Yao, Chao, Chen, Mei. Density adaptivity in deep metric learning. 2019, eqs. 6-8; eq. 6
        is `correlation=False`.
        Differs: sums over the classes of the batch instead of all classes. Classes with a single
        row in the batch have no density and do not count.
    """

    def __init__(
        self,
        *,
        num_classes=None,
        initial_density=None,
        eta=0.5,
        correlation=True,
        alpha_init=0.5,
        alpha_multiplier=1.0,
        normalize=True,
        name="density_regularizer",
    ):
        super().__init__(normalize=normalize, name=name)
        [self.correlation] = check_bool(correlation=correlation)
        [self.eta] = check_not_negative(eta=eta)
        check(eta <= 1, "`eta` must be <= 1", eta=eta)
        [self.alpha_init] = check_finite(alpha_init=alpha_init)
        [self.alpha_multiplier] = check_not_negative(alpha_multiplier=alpha_multiplier)
        self.layer = None
        self._set_classes(num_classes, initial_density)

    def _set_classes(self, num_classes, initial_density):
        if initial_density is not None:
            initial_density = _checked_density(initial_density, num_classes)
            num_classes = len(initial_density)
        if num_classes is not None:
            [num_classes] = check_integer(1, num_classes=num_classes)
            self.layer = DensityTargets(num_classes, self.alpha_init, self.alpha_multiplier)
        self.traits = dataclasses.replace(self.traits, num_classes=num_classes)
        self.initial_density = initial_density

    def prepare(self, labels, embeddings=None, features=None):
        """Measures the initial densities, if it needs them, or counts the classes."""
        labels, num_classes = ids_of_images(labels, self.num_classes)
        if self.correlation and self.initial_density is None:
            if features is None:
                raise ValueError("`features` must be given: densities are measured from them")
            found = len(np.unique(labels))
            expectation = "`labels` must have images of every class, 0 to C - 1"
            check(found == num_classes, expectation, classes=found, largest=num_classes - 1)
            self._set_classes(num_classes, class_density(features(), labels))
        elif self.num_classes is None:
            self._set_classes(num_classes, None)

    def logs(self):
        """The targets."""
        if self.num_classes is None:  # `call` says so
            return {}
        return {"target": ops.convert_to_numpy(self.layer.targets)}

    def call(self, batch):
        given = self.initial_density if self.correlation else self.num_classes
        expectation = "`initial_density`, or `num_classes` with correlation=False, must be given"
        received = {"num_classes": self.num_classes, "initial_density": self.initial_density}
        check(given is not None, f"{expectation} or measured by `prepare`", **received)
        labels, embeddings = batch.labels, batch.embeddings
        means, sizes = pairwise.class_means(labels, embeddings)
        from_mean = ops.sum(ops.square(embeddings - means), axis=1, keepdims=True)
        densities = ops.reshape(pairwise.class_means(labels, from_mean)[0], (-1,))
        targets = ops.cast(self.layer(labels), embeddings.dtype)
        shares = ops.where(sizes > 1, 1.0 / sizes, 0.0)  # those of a class add up to 1
        classes = ops.maximum(ops.sum(shares), 1.0)
        loss = ops.sum(shares * (ops.square(densities - targets) - targets)) / classes
        if self.correlation:
            roots = np.asarray(self.initial_density) ** self.eta
            roots = ops.take(ops.convert_to_tensor(roots, embeddings.dtype), labels)
            products = ops.sum(shares * roots * targets)
            squares = ops.sum(shares * ops.square(roots)) * ops.sum(shares * ops.square(targets))
            # Σ_{c, k} (δ[k] α[c] - δ[c] α[k])² = 2 (Σ δ² Σ α² - (Σ δ α)²)
            loss = loss + 2.0 * (squares - ops.square(products)) / ops.square(classes)
        return loss


_PUBLISHED = {"base": {"name": "contrastive", "average_over": "batch"}, "weight": 10.0}


@register("density", published=_PUBLISHED)
class DensityAdaptiveLoss(RegularizedLoss):
    """Density-adaptive loss: a base loss that lets each class spread out to a learned density.

        loss = base + weight * DensityRegularizer

    Each class keeps an extent of its own, and the embedding overfits the training classes less.

    Args:
        base: As for `RegularizedLoss`.
        num_classes, initial_density: As for `DensityRegularizer`.
        weight: Factor of the regularizer, λ; > 0.
        eta, correlation, alpha_init, alpha_multiplier: As for `DensityRegularizer`.

    Attributes:
        layer: `DensityTargets`, the targets.

    Call:
        As `base`, of labels from 0 to `num_classes - 1`; the densities are of unit rows. It has
        either sign.

    Source:
        Li, Yao, Chao, Chen, Mei. Density adaptivity in deep metric learning. 2019, eq. 9 and
        Algorithm 1; DML-DA with the bases contrastive, triplet and npair.
        Differs: the bases are averages, where the paper prints sums: the only reading for which its
        weight of 10, that of `preset="published"`, is balanced.

    Example:
        >>> loss = DensityAdaptiveLoss(base="triplet", initial_density=[0.3, 0.3])
        >>> rows = np.array([[1., 0.], [0., 1.], [0., 1.], [0., 1.]])
        >>> print(float(loss(np.array([0, 0, 1, 1]), rows)))
        0.125
    """

    def __init__(
        self,
        *,
        base="npair",
        num_classes=None,
        initial_density=None,
        weight=3.0,
        eta=0.5,
        correlation=True,
        alpha_init=0.5,
        alpha_multiplier=1.0,
        name="density",
    ):
        regularizer = DensityRegularizer(
            num_classes=num_classes,
            initial_density=initial_density,
            eta=eta,
            correlation=correlation,
            alpha_init=alpha_init,
            alpha_multiplier=alpha_multiplier,
        )
        super().__init__(base=base, regularizer=regularizer, weight=weight, name=name)

    def option(self, name):
        owner = self if name in ("name", "base", "weight") else self.regularizer
        return getattr(owner, name)


def _checked_density(initial_density, num_classes):
    try:
        values = np.asarray(initial_density, "float64")
    except (TypeError, ValueError):
        values = np.array(np.nan)
    valid = values.ndim == 1 and len(values) and np.all(np.isfinite(values) & (values >= 0))
    expectation = "`initial_density` must be a finite number >= 0 for each class"
    check(valid, expectation, initial_density=initial_density)
    expectation = "`initial_density` must have one number per class"
    fits = num_classes in (None, len(values))
    check(fits, expectation, num_classes=num_classes, length=len(values))
    return values.tolist()
