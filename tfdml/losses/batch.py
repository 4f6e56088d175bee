"""What a loss is given, and what it states of itself."""

import dataclasses
import functools
from typing import Any, NamedTuple

from keras import ops

from tfdml import pairwise


@dataclasses.dataclass(frozen=True)
class Traits:
    """What a loss states of itself for models and other losses.

    Args:
        levels: Equal parts of an embedding, each with a loss of its own.
        num_classes: Number of classes if labels are 0 to `num_classes - 1`; None for any ids.
        takes_label_sets: Whether it takes several labels a row, (batch, num_labels) of 0 and 1.
        takes_sample_weight: Whether its terms are rows, which may be weighted.
        compares_rows: Whether its terms are pairs or tuples of rows.
        compares_batches: Whether it compares labels of a batch with those of other batches.
        learns_similarity: Whether it learns a score of two rows.
    """

    levels: int = 1
    num_classes: int | None = None
    takes_label_sets: bool = False
    takes_sample_weight: bool = False
    compares_rows: bool = True
    compares_batches: bool = False
    learns_similarity: bool = False


class References(NamedTuple):
    """Rows that the rows of a batch are compared with."""

    labels: Any  # (m,) integers; `pairwise.NOBODY` for a row that pairs with none
    embeddings: Any  # (m, dim) floats
    self_positions: Any  # (n,) integers, the reference that is the row itself; -1 if none is


@dataclasses.dataclass(frozen=True, eq=False)
class Batch:
    """The rows of a batch, and what compares them with their references, computed once each.

    Args:
        labels: (n,) integers, or (n, num_labels) integers of 0 and 1.
        embeddings: (n, dim) floats, of unit length if the loss asks for it by `normalize`.
        training: Whether it is a training step.
        sample_weight: (n,) floats, the factor of each row; None for ones.
        others: `References` in place of the batch itself; None for the batch.
        is_negative: Function of the batch, which of the pairs of different classes count, (n, m)
            booleans; None for all.

    Attributes:
        references: `References`: the others, or the rows of the batch.
        cosines: (n, m) inner products with the references: cosines for unit rows.
        squared_distances: (n, m) squared Euclidean distances.
        distances: (n, m) Euclidean distances, with zero gradient where they are 0.
        positives: (n, m) booleans: of the same class, and not the row itself.
        negatives: (n, m) booleans: of different classes, and kept by `is_negative`.
    """

    labels: Any
    embeddings: Any
    training: bool = False
    sample_weight: Any = None
    others: References | None = None
    is_negative: Any = None

    @functools.cached_property
    def references(self) -> References:
        if self.others is not None:
            return self.others
        return References(self.labels, self.embeddings, ops.arange(ops.shape(self.labels)[0]))

    @functools.cached_property
    def cosines(self):
        return self.embeddings @ ops.transpose(self.references.embeddings)

    @functools.cached_property
    def squared_distances(self):
        return pairwise.squared_distances(self.embeddings, self.references.embeddings)

    @functools.cached_property
    def distances(self):
        return pairwise.root(self.squared_distances)

    @functools.cached_property
    def _masks(self):
        labels, _, self_positions = self.references
        return pairwise.masks_against(self.labels, labels, self_positions)

    @property
    def positives(self):
        return self._masks[0]

    @functools.cached_property
    def negatives(self):
        negatives = self._masks[1]
        return negatives if self.is_negative is None else negatives & self.is_negative(self)
