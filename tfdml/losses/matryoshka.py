import dataclasses

from tfdml.checks import check, check_counts, check_not_negative
from tfdml.losses._wrapped import WrappedLoss
from tfdml.losses.base import register


@register("matryoshka")
class MatryoshkaLoss(WrappedLoss):
    """The sum of a loss over the first numbers of the embeddings, so that they can be cut short.

        loss = Σ_d weights[d] * base(first d numbers of each row)

    With a `base` of unit rows, the first numbers of each row are scaled to unit length again.

    Args:
        base: As for `RegularizedLoss`, of one level. Proxies are cut like the rows, except in the
            distances between the centers of `soft_triple`.
        dims: Numbers of dimensions, such as (128, 64, 32, 16).
        weights: Factor of each, >= 0; ones if None.

    Attributes:
        layers: Those of `base`.

    Call:
        As `base`, of (batch, dim) floats with dim at least the largest of `dims`.

    Source:
        Kusupati et al. Matryoshka representation learning. NeurIPS 2022, eq. 1. Differs: the sizes
        share the weights of the base, cut like the rows, and cut rows are scaled to unit length.

    Example:
        >>> loss = MatryoshkaLoss(base="triplet", dims=(2, 1))
        >>> rows = np.array([[1., 0.], [0.6, 0.8], [0., 1.]])
        >>> print(round(float(loss(np.array([0, 0, 1]), rows)), 4))
        0.7
    """

    def __init__(self, *, base, dims, weights=None, name="matryoshka"):
        super().__init__(base, name=name)
        traits = self.base.traits
        check(traits.levels == 1, "`base` must be of one level", levels=traits.levels)
        has_one_width = traits.learns_similarity or traits.compares_batches
        expectation = "`base` must not learn a similarity or keep a memory, which have one width"
        check(not has_one_width, expectation, base=self.base.name)
        check_counts(dims=dims)
        weights = [1.0] * len(dims) if weights is None else weights
        fits = isinstance(weights, (list, tuple)) and len(weights) == len(dims)
        check(fits, "`weights` must have one number per dim", weights=weights, dims=dims)
        named = {f"weights[{place}]": weight for place, weight in enumerate(weights)}
        self._weights = tuple(check_not_negative(**named))  # `weights` are those of Keras
        self.dims = tuple(map(int, dims))

    @property
    def traits(self):
        sets = self.base.traits.takes_label_sets
        return dataclasses.replace(super().traits, takes_label_sets=sets)

    def check_run(self, *, width, **run):
        for dim in self.dims:
            self.base.check_run(width=dim, **run)
        expectation = "the largest of `dims` must be the width of the embeddings"
        check(max(self.dims) == width, expectation, dims=self.dims, width=width)

    def call(self, batch):
        width = batch.embeddings.shape[1]
        fits = isinstance(width, int) and max(self.dims) <= width
        expectation = "`dims` must not exceed the width of the embeddings, which must be known"
        check(fits, expectation, dims=self.dims, width=width)
        total = 0.0
        for dim, weight in zip(self.dims, self._weights, strict=True):
            cut = dataclasses.replace(batch, embeddings=batch.embeddings[:, :dim])
            total = total + weight * self.base.call(self.base.scaled(cut))
        return total

    def option(self, name):
        return self._weights if name == "weights" else super().option(name)
