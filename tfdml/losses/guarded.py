import dataclasses

from keras import ops

from tfdml import pairwise
from tfdml.checks import check, check_finite, check_type
from tfdml.losses._wrapped import WrappedLoss
from tfdml.losses.base import PairLoss, register


@register("guarded")
class GuardedLoss(WrappedLoss):
    """An objective over pairs without the negatives that probably are positives.

    With s the cosines of rows and p the most similar positive of anchor i, a negative n of i counts
    only where all that is given holds:

        s[i, n] <= max_similarity
        s[i, n] <= s[i, p] - margin
        s[i, n] <= s[i, p] * (1 - relative_margin)

    For data with wrong labels, or with one class under several names. Right labels lose their
    hardest negatives too, and rows that all become alike would have none left to part them.

    Args:
        base: As for `RegularizedLoss`, a `PairLoss`, or a loss around such ones.
        max_similarity: Cosine of the most similar negative; None for any.
        margin: Difference from the most similar positive, in cosine; below 0 a negative may be more
            similar than it; None for any. Anchors without a positive keep their negatives.
        relative_margin: The same as a share of its cosine.

    Attributes:
        layers: Those of `base`.

    Call:
        As `base`, of one label a row.

    Raises:
        TypeError: If `base` is no objective over pairs.
        ValueError: If no option is given, or `base` chooses or mixes rows of a batch.

    Source:
        Moreira et al. NV-Retriever. 2024: positive-aware mining of hard negatives, TopK-MarginPos
        and TopK-PercPos. Differs: among the rows of a batch or a memory, by the embedding itself.

    Example:
        >>> rows = np.array([[1., 0.], [0.8, 0.6], [0.96, 0.28], [0., 1.]])
        >>> loss = GuardedLoss(base={"name": "contrastive", "average_over": "sum"}, margin=0.0)
        >>> print(round(float(loss(np.array([0, 0, 1, 1]), rows)), 4))
        1.94
    """

    def __init__(
        self, *, base, max_similarity=None, margin=None, relative_margin=None, name="guarded"
    ):
        super().__init__(base, name=name)
        options = {"margin": margin, "relative_margin": relative_margin}
        options = {"max_similarity": max_similarity, **options}
        given = {option: value for option, value in options.items() if value is not None}
        check(given, f"one of {', '.join(options)} must be given", **options)
        for option, value in options.items():
            setattr(self, option, value if value is None else check_finite(**{option: value})[0])
            inside = value is None or -2 <= value <= 2
            check(inside, f"`{option}` must be from -2 to 2", **{option: value})
        are_over_pairs = all(isinstance(leaf, PairLoss) for leaf in self.leaves)
        check_type(are_over_pairs, "`base` must be an objective over pairs", base=base)
        compares_all = all(
            leaf.takes_references and not getattr(leaf, "mix", None) for leaf in self.leaves
        )
        expectation = "`base` must compare all pairs: no option may choose or mix rows of a batch"
        check(compares_all, expectation, base=self.base.get_config())

    def call(self, batch):
        return self.base.call(dataclasses.replace(batch, is_negative=self._is_negative))

    def _is_negative(self, batch):
        """(n, m) booleans: whether a pair of two classes is not too similar to be one."""
        rows, references = map(pairwise.normalize, (batch.embeddings, batch.references.embeddings))
        cosines = ops.stop_gradient(rows @ ops.transpose(references))
        nearest = pairwise.masked_max(cosines, batch.positives, axis=1)[:, None]
        kept = cosines <= (1e30 if self.max_similarity is None else self.max_similarity)
        lone = ~ops.any(batch.positives, axis=1, keepdims=True)
        if self.margin is not None:
            kept = kept & (lone | (cosines <= nearest - self.margin))
        if self.relative_margin is not None:
            kept = kept & (lone | (cosines <= nearest * (1.0 - self.relative_margin)))
        return kept
