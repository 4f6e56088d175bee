import keras
from keras import ops

from tfdml import pairwise
from tfdml.checks import check, check_not_negative, check_one_of, check_positive
from tfdml.losses.base import PairLoss


@keras.saving.register_keras_serializable("tfdml")
class NPairLoss(PairLoss):
    """N-pair loss: each anchor must be more similar to its positive than to rows of other classes.

    With inner products s times `scale`, over the pairs (anchor i, positive j) selected by `pairs`:

        mean( log(1 + Σ_k exp(s[i, k] - s[i, j])) ) + l2 / 2 * mean(|x_i|² + |x_j|²)

    where k runs over the positives of the other classes in the same group of pairs.

    Args:
        pairs: `"all"`, every ordered positive pair against all rows of other classes; `"first"`,
            the first two rows of each class (N-pair-mc; further rows of a class are not used);
            `"disjoint"`, rows 1 and 2 of each class as one group, rows 3 and 4 as another, and so
            on.
        scale: Factor of the inner products, the inverse of a temperature; > 0. Products of unit
            rows are at most 1: a scale of 10 to 20 trains well, 1 slowly.
        l2: Weight of the squared length of raw rows; >= 0, and 0 for unit rows, whose length is
            constant. The 0.002 of TensorFlow Addons is 0.001 here.
        normalize: Whether rows are scaled to unit length first.
        name: Name of the loss in logs.

    Call:
        labels: (batch,) integers, one class id per row.
        embeddings: (batch, dim) floats; made unit length unless `normalize=False`.
        Returns a scalar float32, >= 0; 0 when the batch holds no positive or no negative pair,
            but for the term of `l2`, which needs no negative one.

    Raises:
        TypeError: If `labels` are not integers or `embeddings` not floats.
        ValueError: If the shapes disagree or an option is out of range.

    Source:
        Sohn. Improved deep metric learning with multi-class N-pair loss objective. NIPS 2016.
        Li, Yao, Chao, Chen, Mei. Density adaptivity in deep metric learning. 2019, eq. 4.
        Differs: unit rows, as in the second paper; the first trains raw rows with `l2`. A mean,
        where eq. 4 prints a sum. Both take one negative of each other class and no scale:
        `tfdml.losses.get("npair", preset="published")`.

    Example:
        >>> loss = NPairLoss(pairs="first", scale=1.0)
        >>> rows = np.array([[1., 0.], [1., 0.], [0., 1.], [0., 1.]])
        >>> print(round(float(loss(np.array([0, 0, 1, 1]), rows)), 4))
        0.3133
    """

    def __init__(self, *, pairs="all", scale=16.0, l2=0.0, normalize=True, name="npair"):
        super().__init__(normalize=normalize, name=name)
        check_one_of(("first", "disjoint", "all"), pairs=pairs)
        check_positive(scale=scale)
        check_not_negative(l2=l2)
        check(not (normalize and l2), "`l2` requires raw rows: normalize=False", l2=l2)
        self.pairs, self.takes_references = pairs, pairs == "all"
        self.scale = float(scale)
        self.l2 = float(l2)

    def call_against(
        self, labels, embeddings, reference_labels, reference_embeddings, self_positions
    ):
        if self.pairs != "all":
            check(
                labels is reference_labels,
                "`pairs` must be 'all' against other rows: the others pair the rows of a batch",
                pairs=self.pairs,
            )
            return self._of_selected_pairs(labels, embeddings)
        positives, negatives = pairwise.masks_against(labels, reference_labels, self_positions)
        similarities = self.scale * (embeddings @ ops.transpose(reference_embeddings))
        push = pairwise.masked_logsumexp(similarities, negatives, axis=1)
        contested = positives & ops.any(negatives, axis=1, keepdims=True)
        gaps = ops.where(contested, push[:, None] - similarities, 0.0)
        losses = ops.where(contested, ops.softplus(gaps), 0.0)
        loss = pairwise.masked_mean(losses, positives)
        if self.l2:
            norms, reference_norms = map(_squared_norms, (embeddings, reference_embeddings))
            lengths = norms[:, None] + reference_norms[None, :]
            loss = loss + self.l2 / 2.0 * pairwise.masked_mean(lengths, positives)
        return loss

    def _of_selected_pairs(self, labels, embeddings):
        """The loss of `pairs` with one positive per anchor: a product of half the rows at most."""
        anchor, positive, rank, exists = self._selected_pairs(labels)
        rows, positive_rows = (ops.take(embeddings, which, axis=0) for which in (anchor, positive))
        similarities = self.scale * (rows @ ops.transpose(positive_rows))
        classes = ops.take(labels, anchor)
        negatives = (classes[:, None] != classes[None, :]) & (rank[:, None] == rank[None, :])
        negatives = negatives & exists[None, :]
        push = pairwise.masked_logsumexp(similarities, negatives, axis=1)
        contested = exists & ops.any(negatives, axis=1)
        gaps = ops.where(contested, push - ops.diagonal(similarities), 0.0)
        losses = ops.where(contested, ops.softplus(gaps), 0.0)
        loss = pairwise.masked_mean(losses, exists)
        if self.l2:
            lengths = _squared_norms(rows) + _squared_norms(positive_rows)
            loss = loss + self.l2 / 2.0 * pairwise.masked_mean(lengths, exists)
        return loss

    def _selected_pairs(self, labels):
        """(n / 2,) anchors, their positives, places in their classes, and whether they exist."""
        count = ops.shape(labels)[0]
        order = ops.argsort(labels)  # stable
        ordered = ops.take(labels, order)
        index = ops.arange(count, dtype=order.dtype)
        start = ops.searchsorted(ordered, ordered, side="left")
        rank = index - ops.cast(start, index.dtype)
        is_anchor = rank == 0 if self.pairs == "first" else rank % 2 == 0
        following = ops.minimum(index + 1, count - 1)
        is_anchor = is_anchor & (following > index) & (ops.take(ordered, following) == ordered)
        first = ops.argsort(~is_anchor)[: count // 2]
        second = ops.minimum(first + 1, count - 1)
        chosen = ops.take(order, first), ops.take(order, second)
        return *chosen, ops.take(rank, first), ops.take(is_anchor, first)


def _squared_norms(rows):
    return ops.sum(ops.square(rows), axis=1)
