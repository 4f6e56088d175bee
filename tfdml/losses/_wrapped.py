"""Losses around other losses."""

import dataclasses

from tfdml.losses.base import LearnedLoss
from tfdml.losses.registry import resolve


class WrappedLoss(LearnedLoss):
    """Base class of losses around others, whose traits, layers and classes they have."""

    def __init__(self, base, *others, name):
        base = resolve(base=base)
        super().__init__(normalize=base.normalize, name=name)
        self.base, self.parts = base, [base, *others]

    @property
    def traits(self):
        traits = [part.traits for part in self.parts]
        return dataclasses.replace(
            traits[0],
            num_classes=min((t.num_classes for t in traits if t.num_classes), default=None),
            takes_label_sets=False,
            compares_batches=any(each.compares_batches for each in traits),
            learns_similarity=any(each.learns_similarity for each in traits),
        )

    @property
    def layer(self):
        return next(reversed(self.layers), None)

    @property
    def layers(self):
        return [layer for part in self.parts for layer in part.layers]

    @property
    def _learned(self):
        """The part that learns a similarity; `base` if none does."""
        return next((part for part in self.parts if part.traits.learns_similarity), self.base)

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

    def check_run(self, **run):
        for part in self.parts:
            part.check_run(**run)

    def logs(self):
        return {name: value for part in self.parts for name, value in part.logs().items()}

    def unit_rows(self, embeddings):
        return self.base.unit_rows(embeddings)
