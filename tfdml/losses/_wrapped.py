"""Losses within losses, as users name them."""

from tfdml import losses
from tfdml.checks import check, check_type
from tfdml.losses.base import LearnedLoss, MetricLoss


def built(get, **received):
    """Returns the loss given as a `MetricLoss`, a name, or a dict of a name and options."""
    ((argument, part),) = received.items()
    if isinstance(part, MetricLoss):
        return part
    check_type(
        isinstance(part, (str, dict)),
        f"`{argument}` must be a MetricLoss, a name, or a dict of a name and options",
        **received,
    )
    options = {"name": part} if isinstance(part, str) else dict(part)
    check(
        isinstance(options.get("name"), str) and all(isinstance(key, str) for key in options),
        f"`{argument}` must have a name among its options",
        **received,
    )
    name = options.pop("name")
    return get(name, **options)


class WrappedLoss(LearnedLoss):
    """Base class of losses around another loss, `base`, whose traits and layers they have.

    Args:
        base: A `MetricLoss`, a name, or a dict of a name and options.
        name: Name of the loss in logs.
    """

    def __init__(self, base, *, name):
        base = built(losses.get, base=base)
        super().__init__(normalize=base.normalize, name=name)
        self.base = base
        self.levels = self.base.levels
        self.compares_batches = self.base.compares_batches
        self.takes_sample_weight = self.base.takes_sample_weight

    @property
    def num_classes(self):
        return self.base.num_classes

    @property
    def layer(self):
        return next(reversed(self.layers), None)

    @property
    def layers(self):
        return self.base.layers

    @property
    def similarity_layer(self):
        return getattr(self.base, "similarity_layer", None)

    def similarity(self, a, b):
        """The similarity of `base`."""
        return self.base.similarity(a, b)

    def prepare(self, labels, embeddings=None, features=None):
        self.base.prepare(labels, embeddings, features)

    def grow(self, num_classes, labels=None, embeddings=None):
        """As `grow` of `base`, a loss over proxies."""
        self.base.grow(num_classes, labels, embeddings)

    def check_run(self, *, rows, classes, width, steps):
        self.base.check_run(rows=rows, classes=classes, width=width, steps=steps)

    def logs(self):
        return self.base.logs()

    def unit_rows(self, embeddings):
        return self.base.unit_rows(embeddings)
