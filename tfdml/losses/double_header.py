import functools
import inspect
import types
from collections.abc import Mapping
from typing import Any, NamedTuple

from keras import ops

from tfdml import pairwise
from tfdml.checks import (
    check,
    check_bool,
    check_not_negative,
    check_one_of,
    check_options,
    check_positive,
    check_type,
)
from tfdml.layers import PDDM
from tfdml.losses.base import LearnedLoss, register
from tfdml.losses.batch import Traits

_SIMILARITY = {"dropout": 0.0, "difference_bias": 0.5}  # default options of the PDDM
_OPTIONS = {*inspect.signature(PDDM).parameters, "dtype", "name", "trainable"} - {"kwargs"}
_ONE_QUADRUPLET = {
    **{"alpha": 0.5, "beta": 1.0, "num_quadruplets": 1, "score_scale": "minmax"},
    **{"temperature": None, "embedding_mining": "similarity", "squared": True},
}
_PUBLISHED = {**_ONE_QUADRUPLET, "similarity": {"dropout": 0.5, "difference_bias": 0.0}}
_NEVER = 3e38  # beyond every score


class Quadruplets(NamedTuple):
    """Rows of quadruplets: a positive pair (i, j), a negative k of i and a negative l of j."""

    i: Any  # (q,) integers, as j, k and l
    j: Any
    k: Any
    l: Any  # noqa: E741, the paper's letter
    valid: Any  # (q,) booleans: whether the quadruplet exists


@register("pddm", published=_PUBLISHED)
@register("pddm_triplet", {"headers": 1}, published=_PUBLISHED)
@register("lmdm", {"similarity": {"use_position": False}}, published=_PUBLISHED)
@register("quadruplet", {"similarity": None}, published=_ONE_QUADRUPLET)
class DoubleHeaderHingeLoss(LearnedLoss):
    """Learns a similarity and the embedding together, from hard quadruplets of the batch.

    The similarity S scores all pairs. `num_quadruplets` selects positive pairs (i, j): the least
    similar or all. k is the row of another class that is most similar to i, and l to j. With s = S
    scaled by `score_scale` and the distances D of unit rows:

        E_m  = max(0, alpha + s[i, k] - s[i, j]) + max(0, alpha + s[j, l] - s[i, j])
        E_e  = max(0, beta + D[i, j] - D[i, k]) + max(0, beta + D[i, j] - D[j, l])
        loss = E_m + embedding_weight * E_e

    In E_e, k and l are by default the nearest by distance (`embedding_mining`). With a
    `temperature` T, the hardest negatives of E_m, its max(0, x), and the nearest by distance are
    smooth:

        s[i, k] = T log Σ exp(S[i, n] / T) over the negatives n of i
        max(0, x) = T log(1 + exp(x / T))
        D[i, k] = Σ D[i, n] w[n] where w = softmax(-|x_i - x_n|² / T), without gradient

    No gradient flows through mining and the range of the scores.

    Args:
        similarity: A `PDDM` layer; or a dict of its options, such as `{"use_position": False}`,
            with dropout 0 and `difference_bias` 0.5 by default; or None to mine by distance and
            learn no similarity: the loss is then only E_e.
        alpha: Margin of scaled scores; > 0.
        beta: Margin of distances (0 to 2), or of squared distances (0 to 4) if `squared`; > 0.
        embedding_weight: Factor of E_e; >= 0. 0 trains only the similarity.
        headers: 2 for the quadruplet, 1 for the triplet (i, j, k) in E_e.
        num_quadruplets: `"per_positive_pair"`, over which the loss is the mean; or 1, that of the
            least similar pair of the batch.
        score_scale: `"minmax"`: maps the lowest and highest score of the batch to 0 and 1; None: no
            scaling.
        temperature: T of the smooth maxima, in scores and in squared distances; > 0. None for the
            hardest negatives.
        embedding_mining: What selects the negatives of E_e: `"distance"` or `"similarity"`, the
            learned one.
        squared: Whether E_e uses squared distances.

    Call:
        As `MetricLoss`; the row of a class with a single row only serves as a negative, and
        `training` applies dropout, also in mining.

    Attributes:
        layer: The `PDDM` layer, which `tfdml.EmbeddingModel` trains; None without one.

    Source:
        Huang, Loy, Tang. Local similarity-aware deep feature embedding. NIPS 2016, eq. 3 and 4;
        the paper's weight decay belongs to the optimizer. `lmdm`, `pddm_triplet` and `quadruplet`
        are its comparisons in section 4.
        Differs: the paper uses one quadruplet per batch, its hardest negatives by the learned
        similarity, scores in [0, 1], alpha 0.5, beta 1, squared distances and dropout 0.5, which do
        not train in thousands of steps; the defaults do. While the score is not learned yet, its
        negatives are random ones, and the hardest by distance alone may pull all rows together; a
        mean of near ones does neither. `tfdml.losses.get("pddm", preset="published")` has the
        paper's options. It does not say how scores are scaled to [0, 1]; `"minmax"` is our reading.
    """

    def __init__(
        self,
        *,
        similarity=types.MappingProxyType(_SIMILARITY),
        alpha=0.1,
        beta=0.2,
        embedding_weight=0.5,
        headers=2,
        num_quadruplets="per_positive_pair",
        score_scale=None,
        temperature=0.1,
        embedding_mining="distance",
        squared=False,
        normalize=True,
        name="double_header",
    ):
        super().__init__(normalize=normalize, name=name)
        if isinstance(similarity, Mapping):
            check_options("the similarity", similarity, _OPTIONS)
            options: dict[str, Any] = {**_SIMILARITY, **similarity}
            similarity = PDDM(**options)
        expectation = "`similarity` must be a PDDM layer, a dict of its options, or None"
        check_type(isinstance(similarity, (PDDM, type(None))), expectation, similarity=similarity)
        self.layer = similarity
        self.traits = Traits(learns_similarity=self.layer is not None)
        self.alpha, self.beta = check_positive(alpha=alpha, beta=beta)
        [self.embedding_weight] = check_not_negative(embedding_weight=embedding_weight)
        expectation = "`embedding_weight` must be > 0 without a similarity"
        learns = similarity is not None or embedding_weight > 0
        check(learns, expectation, embedding_weight=embedding_weight)
        [self.headers] = map(int, check_one_of((1, 2), headers=headers))
        counts = (1, "per_positive_pair")
        [self.num_quadruplets] = check_one_of(counts, num_quadruplets=num_quadruplets)
        [self.score_scale] = check_one_of(("minmax", None), score_scale=score_scale)
        self.temperature = None
        if temperature is not None:
            [self.temperature] = check_positive(temperature=temperature)
        miners = ("distance", "similarity")
        [self.embedding_mining] = check_one_of(miners, embedding_mining=embedding_mining)
        [self.squared] = check_bool(squared=squared)

    def call(self, batch):
        if self.layer is None:
            scores = -ops.stop_gradient(batch.squared_distances)
            mined = mine(batch.labels, scores, self.num_quadruplets)
            return pairwise.masked_mean(self._embedding_loss(batch, mined), mined.valid)
        ends = self.layer.ends(batch.embeddings, drop=batch.training)
        scores_few = self.num_quadruplets == 1 and self.temperature is None
        matrix = self.layer.matrix_of_ends(ends.frozen() if scores_few else ends)
        mined = mine(batch.labels, ops.stop_gradient(matrix), self.num_quadruplets)
        score, given = (self.layer.score, ends) if scores_few else (pairwise.entries, matrix)
        metric = self._metric_loss(batch, matrix, mined, functools.partial(score, given))
        metric = ops.cast(metric, batch.embeddings.dtype)
        losses = metric + self.embedding_weight * self._embedding_loss(batch, mined)
        return pairwise.masked_mean(losses, mined.valid)

    @property
    def similarity_layer(self):
        return self.layer

    def similarity(self, a, b):
        if self.normalize:
            a, b = pairwise.normalize(a), pairwise.normalize(b)
        return self.layer(a, b)

    def _metric_loss(self, batch, matrix, mined, score):
        pairs = [(mined.i, mined.j)]
        if self.temperature is None:
            pairs += [(mined.i, mined.k), (mined.j, mined.l)]
        left, right = map(ops.concatenate, zip(*pairs, strict=True))
        scores = ops.reshape(score(left, right), (len(pairs), -1))
        if self.temperature is not None:
            hardest = pairwise.masked_logsumexp(matrix / self.temperature, batch.negatives, axis=1)
            hardest = ops.take(hardest, ops.stack([mined.i, mined.j]))
            scores = ops.concatenate([scores, self.temperature * hardest])
        if self.score_scale == "minmax":
            fixed, pairs = ops.stop_gradient(matrix), pairwise.off_diagonal(matrix)
            lowest = pairwise.masked_min(fixed, pairs, axis=(0, 1))
            spread = pairwise.masked_max(fixed, pairs, axis=(0, 1)) - lowest
            scores = (scores - lowest) / ops.where(spread > 0, spread, 1.0)
        losses = self.alpha + scores[1:] - scores[:1]
        if self.temperature is None:
            return ops.sum(ops.relu(losses), axis=0)
        return self.temperature * ops.sum(ops.softplus(losses / self.temperature), axis=0)

    def _embedding_loss(self, batch, mined):
        if self.layer is not None and self.embedding_mining == "similarity":
            chosen = ops.stack([*mined[:4]])
            i, j, k, l = ops.unstack(ops.take(batch.embeddings, chosen, axis=0))  # noqa: E741
            squared = (ops.sum(ops.square(gap), axis=1) for gap in (i - j, i - k, j - l))
            positive, *negatives = squared if self.squared else map(pairwise.root, squared)
        else:
            distances = batch.squared_distances if self.squared else batch.distances
            nearest = self._nearest_negatives(batch, distances)
            positive = pairwise.entries(distances, mined.i, mined.j)
            negatives = [ops.take(nearest, end) for end in (mined.i, mined.j)]
        hinges = [ops.relu(self.beta + positive - negative) for negative in negatives]
        return sum(hinges[: self.headers])

    def _nearest_negatives(self, batch, distances):
        """(n,) distances of the nearest row of another class, or their mean of nearby rows."""
        if self.temperature is None:
            return pairwise.masked_min(distances, batch.negatives, axis=1)
        logits = -ops.stop_gradient(batch.squared_distances) / self.temperature
        total = pairwise.masked_logsumexp(logits, batch.negatives, axis=1)
        weights = ops.where(batch.negatives, ops.exp(logits - total[:, None]), 0.0)
        return ops.sum(weights * distances, axis=1)

    def option(self, name):
        return self.layer if name == "similarity" else super().option(name)

    @classmethod
    def from_config(cls, config):
        # Of losses saved before there were these options, or with some that are no more.
        config = {"temperature": None, "embedding_mining": "similarity", **config}
        config.pop("mine_with_dropout", None)
        headers = config.pop("metric_headers", 2)
        check(headers == 2, "`metric_headers` must be 2", metric_headers=headers)
        return super().from_config(config)


def mine(labels, scores, num_quadruplets):
    """The hardest `Quadruplets` by the scores of all pairs, (n, n); ties go to the first."""
    count, negatives = ops.shape(labels)[0], pairwise.negative_mask(labels)
    if num_quadruplets == 1:
        index = ops.arange(count)
        positives = pairwise.positive_mask(labels) & (index[:, None] < index[None, :])
        listed = ops.reshape(ops.where(positives, scores, _NEVER), (-1,))
        place = ops.argmin(listed)[None]
        i, j, valid = place // count, place % count, ops.take(listed, place) < _NEVER
    else:
        i, j = pairwise.unordered_pairs(labels)
        valid = ops.take(labels, i) == ops.take(labels, j)
    hardest = ops.argmax(ops.where(negatives, scores, -_NEVER), axis=1)
    rows = i, j, ops.take(hardest, i), ops.take(hardest, j)
    i, j, k, l = (ops.cast(row, "int32") for row in rows)  # noqa: E741
    has_negative = ops.any(negatives, axis=1)
    return Quadruplets(i, j, k, l, valid & ops.take(has_negative, i) & ops.take(has_negative, j))
