from typing import Any, NamedTuple

import keras
from keras import ops

from tfdml.checks import check, check_bool, check_finite, check_integer, check_share
from tfdml.layers.kept_options import KeepsOptions

_DTYPES = ("float32", "float64")  # others cannot resolve close scores
_PAIRS_AT_ONCE = 8192
_STEPS = 1024  # of the dropout; three draws of this many fit into 31 bits
_SHORTEST = 1e-12  # squared: keeps the direction of an all-zero row defined


class Ends(NamedTuple):
    """Values of each image that are needed to score pairs."""

    rows: Any  # (n, dim)
    positions: Any  # (n, units), half of W_v v + b_v; None without position
    noise: Any  # (n, units) int32 below 1024³, noise of the dropout; None without dropout
    weights: Any  # weights of the layer, {name: (kernel, bias)}

    def frozen(self):
        """The same without gradient."""
        return keras.tree.map_structure(
            lambda part: None if part is None else ops.stop_gradient(part), self
        )


@keras.saving.register_keras_serializable("tfdml")
class PDDM(KeepsOptions):
    """Position-dependent deep metric: a learned similarity of two embeddings.

    The score depends on the difference of the embeddings and on their mean, so that a difference
    counts by where it lies. With r(x) = x / |x|:

        u  = |a - b|                        v  = (a + b) / 2
        u' = r(relu(W_u u + b_u))           v' = r(relu(W_v v + b_v))
        S  = W_s relu(W_c [u', v'] + b_c) + b_s

    The larger S, the more similar; it has no fixed range. S(a, b) = S(b, a).

    Args:
        units: Width of u', v' and of the layer that joins them; that of the embeddings if None.
        use_position: Whether to use v. Without it the score is LMDM, a local metric that depends
            only on the difference.
        dropout: Share of the outputs of W_u, W_v and W_c dropped in training, 0 to below 1; in
            steps of 1/1024.
        difference_bias: Initial value of b_u. At 0 the score starts blind to the length of u, as u'
            is a direction: a value > 0 lets it see distances from the first step.
        seed: Seed of the initial weights and of the dropout; None for a random one.
        **kwargs: Arguments of `keras.layers.Layer`. `dtype` is float32, even under a
            mixed-precision policy, or float64: rankings need their resolution.

    Call:
        a: (n, dim) floats, unit length in the paper.
        b: (n, dim) floats.
        training: Whether to apply dropout.
        Returns (n,) floats, the score of each row of `a` and the same row of `b`.

    Raises:
        ValueError: If the shapes of `a` and `b` disagree, or are not of the rank and width that the
            layer was built for.

    Source:
        Huang, Loy, Tang. Local similarity-aware deep feature embedding. NIPS 2016, section 3.1
        and eq. 2.
        Differs: dropout masks of pairs that share an image are pairwise but not jointly
        independent, as each mask is computed from one random row per image.

    Example:
        >>> similarity = PDDM(seed=0)
        >>> rows = np.array([[1., 0.], [0.8, 0.6], [0., 1.]])
        >>> print(similarity(rows[:2], rows[1:]).shape)
        (2,)
        >>> print(similarity.matrix(rows).shape)
        (3, 3)
    """

    def __init__(
        self, units=None, use_position=True, dropout=0.5, seed=None, difference_bias=0.0, **kwargs
    ):
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        is_exact = self.compute_dtype == self.variable_dtype and self.compute_dtype in _DTYPES
        expectation = f"`dtype` must be one of {', '.join(_DTYPES)}"
        check(is_exact, expectation, dtype=self.dtype_policy.name)
        self.units = self.seed = None
        if units is not None:
            [self.units] = check_integer(1, units=units)
        if seed is not None:
            [self.seed] = check_integer(seed=seed)
        [self.use_position] = check_bool(use_position=use_position)
        [self.dropout] = check_share(dropout=dropout)
        [self.difference_bias] = check_finite(difference_bias=difference_bias)

    def build(self, a_shape, b_shape=None):
        check(len(a_shape) == 2, "embeddings must be (n, dim)", shape=tuple(a_shape))
        dim = a_shape[-1]
        check(dim is not None, "`a` must have a known width", **{"a.shape": tuple(a_shape)})
        # Not earlier: built by `compile`, in the scope of a strategy, all replicas draw the same.
        self._noise_seed = keras.random.SeedGenerator(self.seed)
        units, parts = self.units or dim, 2 if self.use_position else 1
        kernels = {
            "difference": (dim, units),
            "position": (dim, units),
            "combination": (parts * units, units),
            "score": (units, 1),
        }
        if not self.use_position:
            del kernels["position"]
        self._affine = {}
        for number, (name, shape) in enumerate(kernels.items()):
            seed = None if self.seed is None else self.seed + number
            initializer = keras.initializers.GlorotUniform(seed)
            kernel = self.add_weight(shape, initializer, name=f"{name}_kernel")
            start = keras.initializers.Constant(self.difference_bias * (name == "difference"))
            self._affine[name] = kernel, self.add_weight(shape[1:], start, name=f"{name}_bias")

    def call(self, a, b, training=False):
        _check_same_width(a.shape, b.shape)
        check(
            a.shape[0] == b.shape[0] or None in (a.shape[0], b.shape[0]),
            "`a` and `b` must have the same number of rows",
            **{"a.shape": tuple(a.shape), "b.shape": tuple(b.shape)},
        )
        count = ops.shape(a)[0]
        ends = self.ends(ops.concatenate([a, b]), drop=training)
        return self.score(ends, ops.arange(count), ops.arange(count, 2 * count))

    def matrix(self, a, b=None):
        """Scores of all rows of `a` against all rows of `b`, or of `a`, without dropout.

        Args:
            a: (n, dim) floats.
            b: (m, dim) floats, or None for `a`.

        Returns:
            (n, m) floats, computed in chunks of 8,192 pairs, which bounds the memory.

        Raises:
            ValueError: As for a call; n and m may differ.
        """
        a = ops.convert_to_tensor(a, self.compute_dtype)
        if b is None:
            return self.matrix_of_ends(self.ends(a))
        b = ops.convert_to_tensor(b, self.compute_dtype)
        _check_same_width(a.shape, b.shape)
        rows, columns = ops.shape(a)[0], ops.shape(b)[0]
        ends = self.ends(ops.concatenate([a, b]))
        scores = _in_chunks(
            lambda pair: self.score(ends, pair // columns, rows + pair % columns), rows * columns
        )
        return ops.reshape(scores, (rows, columns))

    def matrix_of_ends(self, ends):
        """(n, n) scores of all images against all, each pair scored once."""
        count = ops.shape(ends.rows)[0]

        # Pairs in the order of their offset: (i, i + 0), (i, i + 1), ... modulo count.
        def scores_of(pair):
            row, offset = pair % count, pair // count
            return self.score(ends, row, (row + offset) % count)

        scores = _in_chunks(scores_of, count * (count + 1) // 2)
        index = ops.arange(count)
        offset = (index[None, :] - index[:, None]) % count
        # Pairs beyond half the circle were scored with their rows exchanged.
        first = 2 * offset < count + ops.cast(index[:, None] < index[None, :], offset.dtype)
        pair = ops.where(
            first, offset * count + index[:, None], (count - offset) * count + index[None, :]
        )
        return ops.take(scores, pair)

    def ends(self, rows, drop=False):
        """The `Ends` of rows, (n, dim), for `score`, with dropout if `drop`."""
        rows = ops.cast(rows, self.compute_dtype)
        if not self.built:
            self.build(rows.shape)
        dim = self._affine["difference"][0].shape[0]
        check(
            len(rows.shape) == 2 and rows.shape[1] in (dim, None),
            f"embeddings must be (n, {dim})",
            **{"shape[1:]": tuple(rows.shape[1:])},
        )
        weights = keras.tree.map_structure(ops.convert_to_tensor, self._affine)
        positions = noise = None
        if self.use_position:
            positions = 0.5 * _affine(rows, weights["position"])
        if drop and self.dropout:
            shape = (ops.shape(rows)[0], weights["score"][0].shape[0])
            noise = keras.random.randint(shape, 0, _STEPS**3, seed=self._noise_seed)
        return Ends(rows, positions, noise, weights)

    def score(self, ends, a, b):
        """(p,) scores of the pairs of images `a` and `b`, (p,) integers each, from their `Ends`."""
        difference = ops.take(ends.rows, a, axis=0) - ops.take(ends.rows, b, axis=0)
        drop = self._drop_of(ends.noise, a, b)
        joined = [_direction(drop(_affine(ops.abs(difference), ends.weights["difference"])))]
        if self.use_position:
            position = ops.take(ends.positions, a, axis=0) + ops.take(ends.positions, b, axis=0)
            joined.append(_direction(drop(position)))
        combination = _affine(ops.concatenate(joined, axis=-1), ends.weights["combination"])
        combination = ops.relu(drop(combination))
        if ends.noise is not None:
            combination = combination / (1.0 - self._dropped_steps / _STEPS)
        return _affine(combination, ends.weights["score"])[:, 0]

    @property
    def _dropped_steps(self):
        return min(round(self.dropout * _STEPS), _STEPS - 1)

    def _drop_of(self, noise, a, b):
        """A function that zeroes some of (p, units) values, by a new mask at each call."""
        if noise is None:
            return lambda values: values
        # The low 30 bits of a sum are as random as either term, and independent of each.
        drawn = ops.take(noise, a, axis=0) + ops.take(noise, b, axis=0)
        digits = iter((1, _STEPS, _STEPS**2))

        def drop(values):
            digit = next(digits)
            kept = ops.bitwise_and(drawn, (_STEPS - 1) * digit) >= self._dropped_steps * digit
            return values * ops.cast(kept, values.dtype)

        return drop

    def save_own_variables(self, store):
        super().save_own_variables(store)
        # Keras does not save the seed generator; resumed training needs it to continue its dropout.
        if self.built:
            store["noise_seed"] = ops.convert_to_numpy(self._noise_seed.state)

    def load_own_variables(self, store):
        values = {name: store[name] for name in store.keys()}  # noqa: SIM118, not a dict
        if self.built:
            self._noise_seed.state.assign(values.pop("noise_seed"))
        super().load_own_variables(values)


def _affine(values, weights):
    kernel, bias = weights
    return values @ kernel + bias


def _direction(values):
    values = ops.relu(values)
    squared_norm = ops.sum(ops.square(values), axis=-1, keepdims=True)
    return values * ops.rsqrt(squared_norm + _SHORTEST)


def _in_chunks(scores_of, pairs):
    """`scores_of` pair numbers 0 to `pairs` - 1, in bounded chunks: (pairs,) floats."""
    if isinstance(pairs, int) and pairs <= _PAIRS_AT_ONCE:
        return scores_of(ops.arange(pairs))
    chunks = (pairs + _PAIRS_AT_ONCE - 1) // _PAIRS_AT_ONCE
    within = ops.arange(_PAIRS_AT_ONCE)

    def chunk(number):
        return scores_of(ops.minimum(number * _PAIRS_AT_ONCE + within, pairs - 1))

    return ops.reshape(ops.map(chunk, ops.arange(chunks)), (-1,))[:pairs]


def _check_same_width(a_shape, b_shape):
    check(
        len(a_shape) == 2 and len(b_shape) == 2 and a_shape[-1] == b_shape[-1],
        "`a` and `b` must be (n, dim) with the same dim",
        **{"a.shape": tuple(a_shape), "b.shape": tuple(b_shape)},
    )
