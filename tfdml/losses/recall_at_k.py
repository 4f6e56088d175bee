import dataclasses

from keras import ops

from tfdml import pairwise
from tfdml.checks import check_bool, check_counts, check_integer, check_positive
from tfdml.layers import Draws
from tfdml.losses._soft_ranks import ranked_masks, sigmoid_step, soft_ranks
from tfdml.losses.base import LearnedLoss, PairLoss, register


@register("recall_at_k")
class RecallAtKLoss(PairLoss, LearnedLoss):
    """One minus Recall@K of each row as a query, with smooth ranks and smooth counts.

    With s the cosine similarities, σ_t(x) = 1 / (1 + exp(-x / t)) and P the positives of query q:

        r[q, p] = 1 + Σ_{j != p, q} σ_rank(s[q, j] - s[q, p])
        R[q, K] = min(K, Σ_{p in P} σ_count(K - r[q, p])) / min(K, |P|)
        loss    = 1 - mean over queries q and numbers K of R[q, K]

    R[q, K] is the number of positives among the first K, as a share of the most there can be.
    Queries without a positive do not count. The loss has a positive minimum, as σ_count(0) = 0.5.

    With `mix`, in training, every pair of rows x, y of one class adds a virtual row of that class,
    a x + (1 - a) y, not scaled to unit length, with a from 0 to 1 drawn for each: a query, positive
    and negative like the others.

    Args:
        k: Numbers of neighbours; positive integers.
        rank_temperature: Of the smooth ranks, in cosine; > 0.
        count_temperature: Of the smooth counts, in ranks; > 0.
        rank_self: Whether the query itself is ranked, as in the authors' code.
        mix: Rows of a class, m >= 2, if the pairs of a class are mixed (SiMix); None for no
            virtual rows. A batch has batch * (m - 1) / 2 places; pairs beyond them are left out.
        seed: Integer that seeds the draws.

    Attributes:
        layer: With `mix`, a layer `Draws`, with whose state a run resumes.

    Call:
        As `MetricLoss`; `training` adds virtual rows. It is from 0 to 1.

    Source:
        Patel, Tolias, Matas. Recall@k surrogate loss. CVPR 2022, eqs. 3 to 7, and their similarity
        mixup; the minimum with K in the numerator is that of their code.
        Differs: the query itself is not ranked, as in the paper; the authors' code ranks it.
    """

    def __init__(
        self,
        *,
        k=(1, 2, 4, 8, 16),
        rank_temperature=0.01,
        count_temperature=1.0,
        rank_self=False,
        mix=None,
        seed=0,
        normalize=True,
        name="recall_at_k",
    ):
        super().__init__(normalize=normalize, name=name)
        [self.rank_temperature] = check_positive(rank_temperature=rank_temperature)
        [self.count_temperature] = check_positive(count_temperature=count_temperature)
        [self.rank_self] = check_bool(rank_self=rank_self)
        check_counts(k=k)
        self.k = tuple(map(int, k))
        [self.seed] = check_integer(seed=seed)
        self.mix = self.layer = None
        if mix is not None:
            [self.mix] = check_integer(2, mix=mix)
            self.layer = Draws(seed)

    def call(self, batch):
        cosines, present = batch.cosines, True
        if batch.training and self.mix is not None and batch.others is None:
            labels = batch.labels
            one, other, used = pairs_of_classes(labels, self.mix)
            shares = self.layer.uniform(ops.shape(one), cosines.dtype)
            cosines = with_mixed_rows(cosines, one, other, shares)
            present = ops.concatenate([ops.ones_like(labels, "bool"), used])
            present = present[:, None] & present[None, :]
            mixed = ops.concatenate([labels, ops.take(labels, one)])
            batch = dataclasses.replace(batch, labels=mixed)
        ranked, _ = ranked_masks(batch, self.rank_self)
        positives, ranked = batch.positives & present, (ranked | batch.negatives) & present
        step = sigmoid_step(self.rank_temperature)
        ranks = 1.0 + soft_ranks(cosines, positives, ranked, step)
        sizes = ops.sum(ops.cast(positives, ranks.dtype), axis=1)
        recalls = []
        for count in self.k:
            counted = ops.sigmoid((count - ranks) / self.count_temperature)
            found = ops.minimum(pairwise.masked_sum(counted, positives, axis=1), float(count))
            recalls.append(found / ops.clip(sizes, 1.0, float(count)))
        return pairwise.masked_mean(1.0 - sum(recalls) / len(recalls), sizes > 0)


def pairs_of_classes(labels, size):
    """The pairs of rows of one class: two (n (size - 1) / 2,) rows, and whether a place is used."""
    count = ops.shape(labels)[0]
    index = ops.arange(count)
    pairs = (labels[:, None] == labels[None, :]) & (index[:, None] < index[None, :])
    # Padded, as a small batch has fewer pairs at all than places.
    pairs = ops.reshape(ops.pad(ops.cast(pairs, "int32"), ((0, 0), (0, size))), (-1,))
    # The first pairs: among equal numbers `top_k` returns any on PyTorch.
    order = ops.arange(ops.size(pairs), 0, -1)
    found, places = ops.top_k(pairs * order, count * (size - 1) // 2)
    one, other = places // (count + size), places % (count + size)
    return one, ops.minimum(other, count - 1), found > 0


def with_mixed_rows(similarities, one, other, shares):
    """(n + m, n + m) dot products of n rows and m of shares * one + (1 - shares) * other."""

    def mixed(rows):
        weight = shares[:, None]
        return weight * ops.take(rows, one, axis=0) + (1.0 - weight) * ops.take(rows, other, axis=0)

    columns = ops.concatenate([similarities, ops.transpose(mixed(similarities))], axis=1)
    return ops.concatenate([columns, mixed(columns)], axis=0)
