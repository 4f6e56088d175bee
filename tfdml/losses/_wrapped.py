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
    """Base class of losses around another loss, `base`, whose traits they have, and further ones.

    Args:
        base: A `MetricLoss`, a name, or a dict of a name and options.
        *others: Further losses.
        name: Name of the loss in logs.

    Attributes:
        parts: `base` and the others, whose layers and classes the loss has.
    """

    def __init__(self, base, *others, name):
        base = built(losses.get, base=base)
        super().__init__(normalize=base.normalize, name=name)
        self.base, self.parts = base, [base, *others]
        self.levels = base.levels
        self.compares_rows = base.compares_rows
        self.takes_sample_weight = base.takes_sample_weight
        self.compares_batches = any(part.compares_batches for part in self.parts)

    @property
    def num_classes(self):
        known = [part.num_classes for part in self.parts if part.num_classes]
        return min(known, default=None)

    @property
    def layer(self):
        return next(reversed(self.layers), None)

    @property
    def layers(self):
        return [layer for part in self.parts for layer in part.layers]

    @property
    def _learned(self):
        """The part that learns a similarity; `base` if none does."""
        return next((part for part in self.parts if part.learns_similarity), self.base)

    @property
    def similarity_layer(self):
        return getattr(self._learned, "similarity_layer", None)

    def similarity(self, a, b):
        """The similarity that a part learns."""
        return self._learned.similarity(a, b)

    def prepare(self, labels, embeddings=None, features=None):
        for part in self.parts:
            part.prepare(labels, embeddings, features)

    @property
    def leaves(self):
        """The parts without parts of their own, and those of the others."""
        return [leaf for part in self.parts for leaf in getattr(part, "leaves", [part])]

    def grow(self, num_classes, labels=None, embeddings=None):
        """As `grow` of the parts over proxies; raises a ValueError if others know classes."""
        growing = [leaf for leaf in self.leaves if hasattr(leaf, "grow")]
        others = [leaf.name for leaf in self.leaves if leaf.num_classes and leaf not in growing]
        expectation = "to add classes, losses over proxies must be the only parts that know them"
        check(growing and not others, expectation, parts=others)
        for leaf in growing:
            leaf.grow(num_classes, labels, embeddings)

    def check_run(self, *, rows, classes, width, steps):
        for part in self.parts:
            part.check_run(rows=rows, classes=classes, width=width, steps=steps)

    def logs(self):
        return {name: value for part in self.parts for name, value in part.logs().items()}

    def unit_rows(self, embeddings):
        return self.base.unit_rows(embeddings)
