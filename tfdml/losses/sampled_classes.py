import math

from keras import ops

from tfdml import pairwise
from tfdml.checks import check, check_integer, check_positive, check_type
from tfdml.layers import ClassSampler
from tfdml.losses._wrapped import WrappedLoss
from tfdml.losses.base import register
from tfdml.losses.proxies import ProxyLoss


@register("sampled_classes")
class SampledClassesLoss(WrappedLoss):
    """A softmax over proxies of the batch's classes and of a random share of the others.

    In training, `base` sees rate * C of the C classes: those of the batch, and others drawn anew in
    each step. The memory and the time of the logits shrink by `rate`; `tfdml.optimizers.Adam` and
    `SGD` also update the proxies of these classes alone. Otherwise, `base` sees all classes.

    Args:
        base: As for `RegularizedLoss`, with a softmax over classes: `"norm_softmax"`,
            `"proxy_nca"`, `"cosface"`, `"arcface"` or `"sub_center_arcface"`.
        rate: Share of the classes in a step, above 0 and up to 1; at least as many as a batch has.
        seed: Integer that seeds the draws.

    Attributes:
        layer: The `ClassProxies` of `base`.
        layers: These, and `ClassSampler`, whose state is saved: a run resumes with the same draws.

    Call:
        As `base`; `training` samples classes.

    Raises:
        TypeError: If `base` has no softmax over proxies.
        InvalidArgumentError: If a batch has more classes than are sampled or a label of no class,
            in TensorFlow; the loss is NaN under XLA and on other backends.

    Source:
        An et al. Partial FC. ICCVW 2021; Killing two birds with one stone. CVPR 2022.
        Differs: a single device holds all proxies; moments of proxies that were not sampled do not
        decay.

    Example:
        >>> loss = SampledClassesLoss(base={"name": "cosface", "num_classes": 1000}, rate=0.1)
        >>> rows = np.array([[1., 0.], [0., 1.]])
        >>> bool(loss(np.array([7, 901]), rows, training=True) < loss(np.array([7, 901]), rows))
        True
    """

    def __init__(self, *, base, rate=0.1, seed=0, name="sampled_classes"):
        super().__init__(base, name=name)
        is_softmax = isinstance(self.base, ProxyLoss) and self.base.is_softmax
        check_type(
            is_softmax, "`base` must have a softmax over proxies, as 'arcface' has", base=base
        )
        [self.rate] = check_positive(rate=rate)
        check(rate <= 1, "`rate` must be <= 1", rate=rate)
        [self.seed] = check_integer(seed=seed)
        self.sampler = ClassSampler(seed)

    @property
    def layer(self):
        return self.base.layer

    @property
    def layers(self):
        return [self.sampler, *self.base.layers]

    @property
    def _count(self):
        """Classes in a step."""
        return math.ceil(round(self.rate * (self.num_classes or 0), 6))

    def check_run(self, *, classes, **run):
        super().check_run(classes=classes, **run)
        expectation = "`rate` must sample at least as many classes as a batch may have"
        received = {"rate": self.rate, "sampled": self._count, "classes": classes}
        check(classes <= self._count, expectation, **received)

    def call(self, batch):
        if not batch.training or self.num_classes is None:
            return self.base.call(batch)
        labels, count = batch.labels, self._count
        sampled, places = self.sampler(labels, num_classes=self.num_classes, count=count)
        all_held = ops.all(ops.take(sampled, places) == ops.cast(labels, sampled.dtype))
        all_held = pairwise.asserted(all_held, f"labels must be of at most {count} classes", labels)
        losses = self.base.row_losses(places, self.base.cosines(batch.embeddings, sampled))
        return ops.where(all_held, pairwise.mean(losses, batch.sample_weight), float("nan"))
