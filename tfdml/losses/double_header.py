import inspect
import types
from collections.abc import Mapping
from typing import Any

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
from tfdml.losses._quadruplets import mine, mine_hardest
from tfdml.losses.base import LearnedLoss
from tfdml.losses.batch import Traits
from tfdml.losses.registry import register

_SIMILARITY = {"dropout": 0.0, "difference_bias": 0.5}  # default options of the PDDM
_OPTIONS = {*inspect.signature(PDDM).parameters, "dtype", "name", "trainable"} - {"kwargs"}
_ONE_QUADRUPLET = {
    **{"alpha": 0.5, "beta": 1.0, "num_quadruplets": 1, "score_scale": "minmax"},
    **{"temperature": None, "embedding_mining": "similarity", "squared": True},
}
_PUBLISHED = {**_ONE_QUADRUPLET, "similarity": {"dropout": 0.5, "difference_bias": 0.0}}


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

    No gradient flows through mining and the range of the scores. With `num_quadruplets=1` and a
    `score_scale` other than `"minmax"` no batch × batch matrix of scores is computed: the positive
    pairs are scored, then the negatives of the selected pair. With `"per_positive_pair"` mining
    reads the scores of the loss, unless it leaves out their dropout. Otherwise all pairs are scored
    once more, without gradient.

    Args:
        similarity: A `PDDM` layer; or a dict of its options, such as `{"use_position": False}`,
            with dropout 0 and `difference_bias` 0.5 by default; or None to mine by distance and
            learn no similarity: the loss is then only E_e.
        alpha: Margin of scaled scores; > 0.
        beta: Margin of distances (0 to 2), or of squared distances (0 to 4) if `squared`; > 0.
        embedding_weight: Factor of E_e; >= 0. 0 trains only the similarity.
        headers: 2 for the quadruplet, 1 for the triplet (i, j, k) in E_e.
        num_quadruplets: `"per_positive_pair"`, which scores all batch * (batch + 1) / 2 pairs with
            gradients; `"per_class"`, the least similar pair of each class; or 1, the least similar
            of the batch. The loss is the mean over quadruplets.
        score_scale: `"minmax"`: maps the lowest and highest score of the batch to 0 and 1;
            `"local"`: the same with the scores of the pair (i, j) and of the negatives of i and j;
            `"sigmoid"`: 1 / (1 + exp(-S)); None: no scaling.
        temperature: T of the smooth maxima, in scores and in squared distances; > 0. None for the
            hardest negatives.
        embedding_mining: What selects the negatives of E_e: `"distance"` or `"similarity"`, the
            learned one.
        mine_with_dropout: Whether mining uses the scores of the loss, with the same dropout;
            otherwise it uses scores without dropout.
        squared: Whether E_e uses squared distances.
        normalize: Whether rows are scaled to unit length first.
        name: Name of the loss in logs.

    Call:
        As `MetricLoss`; the row of a class with a single row only serves as a negative, and
        `training` applies dropout. Returns >= 0; 0 without a quadruplet.

    Attributes:
        layer: The `PDDM` layer, which `tfdml.EmbeddingModel` trains; None without one.

    Raises:
        TypeError: For wrong inputs, as `MetricLoss`, or an option of a wrong type.
        ValueError: For wrong inputs or options; by `compile` of a plain `keras.Model`, which would
            leave the layer untrained.

    Source:
        Huang, Loy, Tang. Local similarity-aware deep feature embedding. NIPS 2016, eq. 3 and 4;
        the paper's weight decay belongs to the optimizer. `lmdm`, `pddm_triplet` and `quadruplet`
        are its comparisons in section 4.
        Differs: the paper uses one quadruplet per batch, its hardest negatives by the learned
        similarity, scores in [0, 1], alpha 0.5, beta 1, squared distances and dropout 0.5, which do
        not train in thousands of steps; the defaults do, and learn the score sooner by the smooth
        maxima and the initial bias. While the score is not learned yet, its negatives are random
        ones, and the hardest by distance alone may pull all rows together; a mean of near ones does
        neither. For the paper's options use `tfdml.losses.get("pddm", preset="published")`. The
        paper does not say how scores are scaled to [0, 1]; `"minmax"` over the batch is our
        reading. Its extremes have no gradient, as otherwise the mined scores would be constants.

    Example:
        >>> loss = DoubleHeaderHingeLoss(similarity=None)
        >>> rows = np.array([[1., 0.], [0., 1.], [0.6, 0.8], [0.8, 0.6]])
        >>> print(round(float(loss(np.array([0, 0, 1, 1]), rows)), 4))
        0.977
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
        mine_with_dropout=True,
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
        check(
            similarity is not None or embedding_weight > 0,
            "`embedding_weight` must be > 0 without a similarity",
            embedding_weight=embedding_weight,
        )
        check_one_of((1, 2), headers=headers)
        self.headers = int(headers)
        counts = (1, "per_class", "per_positive_pair")
        [self.num_quadruplets] = check_one_of(counts, num_quadruplets=num_quadruplets)
        scales = ("minmax", "local", "sigmoid", None)
        [self.score_scale] = check_one_of(scales, score_scale=score_scale)
        self.temperature = None
        if temperature is not None:
            [self.temperature] = check_positive(temperature=temperature)
        miners = ("distance", "similarity")
        [self.embedding_mining] = check_one_of(miners, embedding_mining=embedding_mining)
        self.mine_with_dropout, self.squared = check_bool(
            mine_with_dropout=mine_with_dropout, squared=squared
        )

    def call(self, batch):
        if self.layer is None:
            scores = -ops.stop_gradient(batch.squared_distances)
            mined = mine(batch.labels, scores, self.num_quadruplets)
            return pairwise.masked_mean(self._embedding_loss(batch, mined), mined.valid)
        ends = self.layer.ends(batch.embeddings, drop=batch.training)
        matrix = None
        if self.num_quadruplets == "per_positive_pair":  # needs almost every score
            matrix = self.layer.matrix_of_ends(ends)
        mined = self._mine(batch.labels, ends, matrix)
        metric = ops.cast(self._metric_loss(batch, ends, matrix, mined), batch.embeddings.dtype)
        losses = metric + self.embedding_weight * self._embedding_loss(batch, mined)
        return pairwise.masked_mean(losses, mined.valid)

    @property
    def similarity_layer(self):
        return self.layer

    def similarity(self, a, b):
        if self.normalize:
            a, b = pairwise.normalize(a), pairwise.normalize(b)
        return self.layer(a, b)

    def _mine(self, labels, ends, matrix=None):
        ends = ends.frozen()
        if not self.mine_with_dropout and ends.noise is not None:
            ends, matrix = ends._replace(noise=None), None
        if self.num_quadruplets == 1 and self.score_scale != "minmax":
            dtype = self.layer.compute_dtype
            return mine_hardest(labels, lambda a, b: self.layer.score(ends, a, b), dtype)
        scores = self.layer.matrix_of_ends(ends) if matrix is None else ops.stop_gradient(matrix)
        mined = mine(labels, scores, self.num_quadruplets)
        if self.score_scale != "minmax":
            return mined
        pairs = pairwise.off_diagonal(labels)
        return mined._replace(
            lowest=pairwise.masked_min(scores, pairs, axis=(0, 1)),
            highest=pairwise.masked_max(scores, pairs, axis=(0, 1)),
        )

    def _metric_loss(self, batch, ends, matrix, mined):
        if self.temperature is None:
            left = ops.concatenate([mined.i, mined.i, mined.j])
            right = ops.concatenate([mined.j, mined.k, mined.l])
            scores = ops.reshape(self._scores(ends, matrix, left, right), (3, -1))
        else:
            positive = self._scores(ends, matrix, mined.i, mined.j)
            negatives = self._smooth_hardest(batch.labels, ends, matrix, mined)
            scores = ops.concatenate([positive[None], negatives])
        if self.score_scale == "sigmoid":
            scores = ops.sigmoid(scores)
        if self.score_scale in ("minmax", "local"):
            spread = mined.highest - mined.lowest
            scores = (scores - mined.lowest) / ops.where(spread > 0, spread, 1.0)
        losses = self.alpha + scores[1:] - scores[:1]
        if self.temperature is None:
            return ops.sum(ops.relu(losses), axis=0)
        return self.temperature * ops.sum(ops.softplus(losses / self.temperature), axis=0)

    def _scores(self, ends, matrix, left, right):
        """(p,) scores of pairs, from those of all pairs if they are known."""
        if matrix is None:
            return self.layer.score(ends, left, right)
        return pairwise.entries(matrix, left, right)

    def _smooth_hardest(self, labels, ends, matrix, mined):
        """(2, q) smooth maxima of the scores of the negatives of i, and of those of j."""
        rows = ops.concatenate([mined.i, mined.j])
        if matrix is None:
            count = ops.shape(labels)[0]
            left = ops.repeat(rows, count)
            right = ops.tile(ops.arange(count, dtype=rows.dtype), [ops.shape(rows)[0]])
            scores = ops.reshape(self.layer.score(ends, left, right), (-1, count))
            negatives = ops.take(labels, rows)[:, None] != labels[None, :]
        else:
            scores, negatives = matrix, pairwise.negative_mask(labels)
        hardest = pairwise.masked_logsumexp(scores / self.temperature, negatives, axis=1)
        hardest = hardest if matrix is None else ops.take(hardest, rows)
        return self.temperature * ops.reshape(hardest, (2, -1))

    def _embedding_loss(self, batch, mined):
        if self.layer is not None and self.embedding_mining == "similarity":
            chosen = ops.stack([mined.i, mined.j, mined.k, mined.l])
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
        # Of losses saved before there were these options, or with one that is no more.
        config = {"temperature": None, "embedding_mining": "similarity", **config}
        headers = config.pop("metric_headers", 2)
        check(headers == 2, "`metric_headers` must be 2", metric_headers=headers)
        return super().from_config(config)
