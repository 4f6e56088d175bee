import keras
import numpy as np
from keras import ops

from tfdml import pairwise
from tfdml.checks import check, check_bool, check_positive
from tfdml.losses._soft_ranks import masks_of_ranks, sigmoid_step, soft_ranks
from tfdml.losses.base import PairLoss


@keras.saving.register_keras_serializable("tfdml")
class RecallAtKLoss(PairLoss):
    """One minus Recall@K of each row as a query, with smooth ranks and smooth counts.

    With s the cosine similarities, σ_t(x) = 1 / (1 + exp(-x / t)) and P the positives of query q:

        r[q, p] = 1 + Σ_{j != p, q} σ_rank(s[q, j] - s[q, p])
        R[q, K] = min(K, Σ_{p in P} σ_count(K - r[q, p])) / min(K, |P|)
        loss    = 1 - mean over queries q and numbers K of R[q, K]

    R[q, K] is the share of the K first places that positives hold. Queries without a positive do
    not count. The loss has a positive minimum, as σ_count(0) = 0.5.

    Args:
        k: Numbers of neighbours; positive integers.
        rank_temperature: Of the smooth ranks, in cosine; > 0.
        count_temperature: Of the smooth counts, in ranks; > 0.
        rank_self: Whether the query itself is among the rows that are ranked, as in the authors'
            code, where every rank is one too large.
        normalize: Whether rows are scaled to unit length first.
        name: Name of the loss in logs.

    Call:
        labels: (batch,) integers, one class id per row; classes of any size.
        embeddings: (batch, dim) floats; made unit length unless `normalize=False`.
        Returns a scalar float32, from 0 to 1; 0 when the batch holds no positive pair.

    Raises:
        TypeError: If `labels` are not integers, `embeddings` not floats or an option has a wrong
            type.
        ValueError: If the shapes disagree or an option is out of range.

    Source:
        Patel, Tolias, Matas. Recall@k surrogate loss with large batches and similarity mixup. CVPR
        2022, eqs. 3 to 7; the minimum with K in the numerator is that of their code.
        Differs: the query itself is not ranked, as the paper has it and its code has not; the
        similarity mixup is left out.

    Example:
        >>> rows = np.array([[1., 0.], [0.8, 0.6], [0., 1.]])
        >>> print(round(float(RecallAtKLoss(k=(1,))(np.array([0, 0, 1]), rows)), 4))
        0.5
    """

    def __init__(
        self,
        *,
        k=(1, 2, 4, 8, 16),
        rank_temperature=0.01,
        count_temperature=1.0,
        rank_self=False,
        normalize=True,
        name="recall_at_k",
    ):
        super().__init__(normalize=normalize, name=name)
        check_positive(rank_temperature=rank_temperature, count_temperature=count_temperature)
        check_bool(rank_self=rank_self)
        check(
            isinstance(k, (list, tuple))
            and len(k) > 0
            and all(isinstance(count, (int, np.integer)) and count > 0 for count in k),
            "`k` must be positive integers",
            k=k,
        )
        self.k = tuple(map(int, k))
        self.rank_temperature = float(rank_temperature)
        self.count_temperature = float(count_temperature)
        self.rank_self = rank_self

    def call_against(
        self, labels, embeddings, reference_labels, reference_embeddings, self_positions
    ):
        similarities = embeddings @ ops.transpose(reference_embeddings)
        positives, negatives = pairwise.masks_against(labels, reference_labels, self_positions)
        ranked, _ = masks_of_ranks(labels, reference_labels, self_positions, self.rank_self)
        step = sigmoid_step(self.rank_temperature)
        ranks = 1.0 + soft_ranks(similarities, positives, ranked | negatives, step)
        sizes = ops.sum(ops.cast(positives, ranks.dtype), axis=1)
        recalls = []
        for count in self.k:
            counted = ops.sigmoid((count - ranks) / self.count_temperature)
            found = ops.minimum(pairwise.masked_sum(counted, positives, axis=1), float(count))
            recalls.append(found / ops.clip(sizes, 1.0, float(count)))
        return pairwise.masked_mean(1.0 - sum(recalls) / len(recalls), sizes > 0)
