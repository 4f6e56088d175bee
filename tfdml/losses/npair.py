from keras import ops

from tfdml import pairwise
from tfdml.checks import check, check_not_negative, check_one_of, check_positive
from tfdml.losses.base import PairLoss, register
from tfdml.losses.batch import Batch, References


@register("npair", published={"pairs": "first", "scale": 1.0})
class NPairLoss(PairLoss):
    """N-pair loss: each anchor must be more similar to its positive than to rows of other classes.

    With inner products s times `scale`, over the pairs (anchor i, positive j) selected by `pairs`:

        mean( log(1 + Σ_k exp(s[i, k] - s[i, j])) ) + l2 / 2 * mean(|x_i|² + |x_j|²)

    where k runs over the positives of the other classes in the same group of pairs.

    Args:
        pairs: `"all"`, every ordered positive pair against all rows of other classes; `"first"`,
            the first two rows of each class (N-pair-mc); `"disjoint"`, rows 1 and 2 of each class
            as one group, rows 3 and 4 as another, and so on.
        scale: Factor of the inner products; > 0. For unit rows 10 to 20 trains well, 1 slowly.
        l2: Weight of the squared length of raw rows; >= 0, and 0 for unit rows. The 0.002 of
            TensorFlow Addons is 0.001 here.

    Source:
        Sohn. Improved deep metric learning with multi-class N-pair loss objective. NIPS 2016.
        Li, Yao, Chao, Chen, Mei. Density adaptivity in deep metric learning. 2019, eq. 4.
        Differs: unit rows, as in the second paper, and a mean, where eq. 4 prints a sum. Both take
        one negative of each other class and no scale, `preset="published"`.
    """

    def __init__(self, *, pairs="all", scale=16.0, l2=0.0, normalize=True, name="npair"):
        super().__init__(normalize=normalize, name=name)
        [self.pairs] = check_one_of(("first", "disjoint", "all"), pairs=pairs)
        self.takes_references = pairs == "all"
        [self.scale] = check_positive(scale=scale)
        [self.l2] = check_not_negative(l2=l2)
        check(not (normalize and l2), "`l2` requires raw rows: normalize=False", l2=l2)

    def call(self, batch):
        positives, negatives = batch.positives, batch.negatives
        if self.pairs != "all":
            batch, positives, negatives = self._selected_pairs(batch)
        similarities = self.scale * batch.cosines
        push = pairwise.masked_logsumexp(similarities, negatives, axis=1)[:, None]
        contested = positives & ops.any(negatives, axis=1, keepdims=True)
        gaps = ops.where(contested, push - similarities, 0.0)
        losses = ops.where(contested, ops.softplus(gaps), 0.0)
        loss = pairwise.masked_mean(losses, positives)
        if self.l2:
            ends = batch.embeddings, batch.references.embeddings
            norms, others = (ops.sum(ops.square(rows), axis=1) for rows in ends)
            lengths = norms[:, None] + others[None, :]
            loss = loss + self.l2 / 2.0 * pairwise.masked_mean(lengths, positives)
        return loss

    def _selected_pairs(self, batch):
        """A batch of n / 2 anchors and positives, and the masks of pairs and of negatives."""
        count = ops.shape(batch.labels)[0]
        order = ops.argsort(batch.labels)  # stable
        ordered = ops.take(batch.labels, order)
        index = ops.arange(count, dtype=order.dtype)
        start = ops.searchsorted(ordered, ordered, side="left")
        rank = index - ops.cast(start, index.dtype)
        is_anchor = rank == 0 if self.pairs == "first" else rank % 2 == 0
        following = ops.minimum(index + 1, count - 1)
        is_anchor = is_anchor & (following > index) & (ops.take(ordered, following) == ordered)
        first = ops.argsort(~is_anchor)[: count // 2]
        second = ops.minimum(first + 1, count - 1)
        exists, group, labels = (ops.take(of, first) for of in (is_anchor, rank, ordered))
        anchors, others = (
            ops.take(batch.embeddings, ops.take(order, end), axis=0) for end in (first, second)
        )
        pairs = Batch(labels, anchors, others=References(labels, others, ops.arange(count // 2)))
        same_group = group[:, None] == group[None, :]
        own = exists[:, None] & ~pairwise.off_diagonal(labels)
        return pairs, own, pairs.negatives & same_group & exists[None, :]
