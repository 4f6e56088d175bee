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
            constant. The original uses 0.002.
        normalize: Whether rows are scaled to unit length first.
        name: Name of the loss in logs.

    Call:
        labels: (batch,) integers, one class id per row.
        embeddings: (batch, dim) floats; made unit length unless `normalize=False`.
        Returns a scalar float32, >= 0; 0 when the batch holds no positive or no negative pair.

    Raises:
        TypeError: If `labels` are not integers or `embeddings` not floats.
        ValueError: If the shapes disagree or an option is out of range.

    Source:
        Sohn. Improved deep metric learning with multi-class N-pair loss objective. NIPS 2016.
        Li, Yao, Chao, Chen, Mei. Density adaptivity in deep metric learning. 2019, eq. 4.
        Differs: unit rows, as in the second paper; the first trains raw rows with `l2`. Both use
        one pair per class and no scale: `tfdml.losses.get("npair", preset="published")`.

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
        positives, negatives = pairwise.masks_against(labels, reference_labels, self_positions)
        if self.pairs != "all":
            check(
                labels is reference_labels,
                "`pairs` must be 'all' against other rows: the others pair the rows of a batch",
                pairs=self.pairs,
            )
            grouped = self._grouped(positives)
            positives, negatives = positives & grouped, negatives & grouped
        similarities = self.scale * (embeddings @ ops.transpose(reference_embeddings))
        push = pairwise.masked_logsumexp(similarities, negatives, axis=1)
        contested = positives & ops.any(negatives, axis=1, keepdims=True)
        gaps = ops.where(contested, push[:, None] - similarities, 0.0)
        losses = ops.where(contested, ops.softplus(gaps), 0.0)
        loss = pairwise.masked_mean(losses, positives)
        if self.l2:
            norms, reference_norms = (
                ops.sum(ops.square(rows), axis=1) for rows in (embeddings, reference_embeddings)
            )
            lengths = norms[:, None] + reference_norms[None, :]
            loss = loss + self.l2 / 2.0 * pairwise.masked_mean(lengths, positives)
        return loss

    def _grouped(self, positives):
        """Whether row i is an anchor and row j a positive of one group of pairs."""
        index = ops.arange(ops.shape(positives)[0])
        earlier = positives & (index[None, :] < index[:, None])
        rank = ops.sum(ops.cast(earlier, "int32"), axis=1)  # place of the row in its class
        anchor = rank == 0 if self.pairs == "first" else rank % 2 == 0
        return anchor[:, None] & (rank[None, :] == rank[:, None] + 1)
