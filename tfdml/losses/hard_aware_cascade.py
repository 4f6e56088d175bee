import dataclasses

from keras import ops

from tfdml import pairwise
from tfdml.checks import (
    check,
    check_bool,
    check_integer,
    check_not_negative,
    check_one_of,
    check_positive,
    check_type,
)
from tfdml.losses.base import MetricLoss, register


@register("hdc", published={"mine_positives": True})
@register(
    "hard_contrastive", {"levels": 1, "hard_ratios": (0.5,)}, published={"mine_positives": True}
)
class HardAwareCascadeLoss(MetricLoss):
    """Hard-aware cascade: a contrastive loss of the hardest pairs at several levels of a network.

    Each level, an exit of the network, has its own part of the embedding; deeper levels use fewer
    and harder pairs. With squared distances D_k of level k:

        l_k[i, j] = D_k[i, j]                                     for a positive pair
                    negative_factor * max(0, margin - D_k[i, j])  for a negative pair

        loss = Σ_k level_weights[k] * Σ_{(i, j) kept at level k} l_k[i, j]

    where the sum of each level is divided according to `average_over`. Level k keeps the share
    `hard_ratios[k]` of all negative pairs, the hardest by l, and with `mine_positives` the same
    share of the positive pairs. The selection has no gradient.

    Args:
        levels: Number of equal parts of an embedding, from the shallowest level to the deepest.
        hard_ratios: Share of all pairs of the batch kept at each level, rounded down, above 0 and
            up to 1.
        margin: Distance above which a negative pair has no loss, in squared distance (0 to 4 for
            unit rows), or in distance if not `squared`; > 0.
        squared: Whether D is the squared Euclidean distance.
        selection: `"own_all"`: each level ranks all pairs by its own l; `"cascade"`: the pairs kept
            by the previous level, by its own l; `"previous"`: these, by the l of that level.
        average_over: `"active"` (kept pairs with a loss above 0), `"ordered"` (the same, but
            ranking and counting negative pairs in both orders, as in the released code; requires
            `selection="own_all"`), `"pairs"` (kept pairs) or `"sum"` (no division).
        level_weights: Factor of each level, >= 0; ones if None.
        negative_factor: Factor of negative pairs, > 0.
        mine_positives: Whether to select positive pairs too, as the paper does.
        normalize: Whether the rows of each level are scaled to unit length first.

    Call:
        As `MetricLoss`, of (batch, levels * dim) floats, the concatenated embeddings of the levels.

    Raises:
        ValueError: If the embeddings do not divide into levels.

    Source:
        Yuan, Yang, Zhang. Hard-aware deeply cascaded embedding. ICCV 2017, eqs. 5-11. Its text
        and Algorithm 1 read as `"cascade"`, Figure 2 as `"previous"`; the released code, which
        produced the published results, uses `"own_all"` with `average_over="ordered"` and
        `negative_factor=10`. `"hard_contrastive"` is its baseline: one level.
        Differs: all positive pairs are kept, which has higher recall on photographs and characters;
        `tfdml.losses.get("hdc", preset="published")` mines them. Averages are over active pairs,
        where the paper prints a sum; squared distances, as in the code; the full gradient, where
        the code propagates half of it. Ties go by the order in the batch.

    Example:
        >>> loss = HardAwareCascadeLoss(levels=2, hard_ratios=(1.0, 0.5))
        >>> rows = np.array([[1., 0., 1., 0.], [0., 1., 1., 0.], [0., 1., 0., 1.]])
        >>> print(float(loss(np.array([0, 0, 1]), rows)))
        1.5
    """

    def __init__(
        self,
        *,
        levels=3,
        hard_ratios=(1.0, 0.5, 0.2),
        margin=1.0,
        squared=True,
        selection="own_all",
        average_over="active",
        level_weights=None,
        negative_factor=1.0,
        mine_positives=False,
        normalize=True,
        name="hdc",
    ):
        super().__init__(normalize=normalize, name=name)
        [levels] = check_integer(1, levels=levels)
        self.traits = dataclasses.replace(self.traits, levels=levels)
        self.hard_ratios = self._per_level("hard_ratios", hard_ratios)
        are_shares = all(0 < ratio <= 1 for ratio in self.hard_ratios)
        check(are_shares, "`hard_ratios` must be > 0 and <= 1", hard_ratios=hard_ratios)
        [self.margin] = check_positive(margin=margin)
        [self.negative_factor] = check_positive(negative_factor=negative_factor)
        [self.squared] = check_bool(squared=squared)
        [self.mine_positives] = check_bool(mine_positives=mine_positives)
        [self.selection] = check_one_of(("own_all", "cascade", "previous"), selection=selection)
        means = ("active", "ordered", "pairs", "sum")
        [self.average_over] = check_one_of(means, average_over=average_over)
        expectation = "`average_over='ordered'` requires `selection='own_all'`"
        allowed = average_over != "ordered" or selection == "own_all"
        check(allowed, expectation, selection=selection)
        self.level_weights = level_weights
        if level_weights is not None:
            self.level_weights = self._per_level("level_weights", level_weights)

    def _per_level(self, name, values):
        received = {name: values}
        is_list = isinstance(values, (list, tuple))
        check_type(is_list, f"`{name}` must be a list of numbers", **received)
        expectation = f"`{name}` must have one number per level"
        check(len(values) == self.levels, expectation, levels=self.levels, **received)
        numbered = {f"{name}[{level}]": value for level, value in enumerate(values)}
        return tuple(check_not_negative(**numbered))

    def unit_rows(self, embeddings):
        shape = ops.shape(embeddings)
        rows = ops.reshape(embeddings, (-1, self._width(embeddings)))
        return ops.reshape(pairwise.normalize(rows), shape)

    def call(self, batch):
        count, labels = ops.shape(batch.embeddings)[0], batch.labels
        rows = ops.reshape(batch.embeddings, (count, self.levels, self._width(batch.embeddings)))
        by_level = dataclasses.replace(batch, embeddings=ops.swapaxes(rows, 0, 1))
        distances = by_level.squared_distances if self.squared else by_level.distances
        hinges = self.negative_factor * (self.margin - distances)
        # For its gradient `ops.relu` would keep floats; this keeps booleans.
        hinges = ops.where(distances >= self.margin, 0.0, hinges)
        losses = ops.where(labels[:, None] == labels[None, :], distances, hinges)
        copies = self._copies(ops.stop_gradient(losses), labels)
        totals = ops.sum(copies * losses, axis=(1, 2))
        if self.average_over != "sum":
            counted = copies
            if self.average_over != "pairs":
                counted = ops.where(losses <= 0, 0.0, copies)
            totals = totals / ops.maximum(ops.sum(counted, axis=(1, 2)), 1.0)
        weights = self.level_weights or (1.0,) * self.levels
        return sum(weight * totals[level] for level, weight in enumerate(weights))

    def _width(self, embeddings):
        width = embeddings.shape[1]
        received = {"embeddings.shape": tuple(embeddings.shape), "levels": self.levels}
        divides = isinstance(width, int) and width % self.levels == 0
        check(divides, "the width of `embeddings` must be a multiple of `levels`", **received)
        return width // self.levels

    def _copies(self, losses, labels):
        """(levels, batch, batch) floats: how often each pair counts at a level, 0, 1 or 2 times."""
        index = ops.arange(ops.shape(labels)[0])
        upper = index[:, None] < index[None, :]
        same = labels[:, None] == labels[None, :]
        pairs = candidates = [~same & upper, same & upper]
        each = (2.0 if self.average_over == "ordered" else 1.0, 1.0)
        sizes = [ops.sum(ops.cast(mask, losses.dtype)) for mask in pairs]
        levels = []
        for level, ratio in enumerate(self.hard_ratios):
            if self.selection == "own_all":
                candidates = pairs
            rank_by = losses[max(level - 1, 0) if self.selection == "previous" else level]
            ratios = (ratio, ratio if self.mine_positives else 1.0)
            kinds = zip(candidates, ratios, sizes, each, strict=True)
            copies = [_hardest(rank_by, *kind) for kind in kinds]
            candidates = [kept > 0 for kept in copies]
            levels.append(copies[0] + copies[1])
        return ops.stack(levels)


def _hardest(losses, candidates, ratio, size, each):
    """(n, n) copies, up to `each`, of the hardest `ratio` of `size` pairs; ties go to the first."""
    if ratio == 1:
        return ops.where(candidates, ops.cast(each, losses.dtype), 0.0)
    # With slack for ratios such as 0.29, whose floats are slightly too small.
    wanted = ops.floor(ratio * each * size + 1e-3)
    listed = ops.where(candidates, losses, -1.0)  # below every loss
    once = pairwise.entries(listed, *pairwise.unordered_pairs(listed))
    ranked = ops.sort(ops.append(once, -ops.ones(1, losses.dtype)))  # also of a batch without pairs
    last = ops.shape(ranked)[0] - 1
    place = last + 1 - ops.cast(ops.ceil(wanted / each), "int32")
    threshold = ops.take(ranked, ops.clip(place, 0, last))
    above, tied = listed > threshold, candidates & (losses == threshold)
    # How many are harder than a tied one, or before it.
    earlier = ops.reshape(ops.cumsum(ops.reshape(ops.cast(tied, "int32"), (-1,))), ops.shape(tied))
    earlier = earlier - 1 + ops.sum(ops.cast(above, "int32"))
    left = ops.clip(wanted - each * ops.cast(earlier, losses.dtype), 0.0, each)
    return ops.where(above, ops.cast(each, losses.dtype), ops.where(tied, left, 0.0))
