"""Hard quadruplets of a batch: a positive pair (i, j), a negative k of i and a negative l of j.

Scores are similarities of two rows. Mining needs no gradient: pass scores without gradient.
"""

from typing import Any, NamedTuple

from keras import ops

from tfdml import pairwise

_NEVER = 3e38  # beyond every score


class Quadruplets(NamedTuple):
    """Rows of each quadruplet, and the range of the scores from which it was selected."""

    i: Any  # (q,) integers, as j, k and l
    j: Any
    k: Any
    l: Any  # noqa: E741, the paper's letter
    valid: Any  # (q,) booleans: whether the quadruplet exists
    lowest: Any  # (q,) scores, of the pair and of the negatives of its rows
    highest: Any


def mine(labels, scores, num_quadruplets):
    """The hardest quadruplets, given the scores of all pairs.

    Args:
        labels: (n,) integers.
        scores: (n, n) floats.
        num_quadruplets: 1, for the least similar positive pair; `"per_class"`, for that of each
            class; `"per_positive_pair"`, for all positive pairs.

    Returns:
        `Quadruplets`: 1, n, or n (n - 1) / 2 of them, not all of them `valid`. Ties go to the
        first.
    """
    count = ops.shape(labels)[0]
    index = ops.arange(count)
    if num_quadruplets == "per_positive_pair":
        i, j = pairwise.unordered_pairs(labels)
        valid = ops.take(labels, i) == ops.take(labels, j)
    else:
        later = pairwise.positive_mask(labels) & (index[:, None] < index[None, :])
        positives = ops.where(later, scores, _NEVER)
        j, least = ops.argmin(positives, axis=1), ops.min(positives, axis=1)
        if num_quadruplets == 1:
            i = ops.argmin(least)[None]
            j = ops.take(j, i)
            valid = ops.take(least, i) < _NEVER
        else:
            i = index
            same = labels[:, None] == labels[None, :]
            least_in_class = ops.min(ops.where(same, least[None, :], _NEVER), axis=1)
            chosen = (least == least_in_class) & (least < _NEVER)
            earlier = same & chosen[None, :] & (index[None, :] < index[:, None])
            valid = chosen & ~ops.any(earlier, axis=1)
    j = ops.cast(j, i.dtype)
    ends, mask = ops.stack([i, j]), pairwise.negative_mask(labels)
    return _with_negatives(i, j, pairwise.entries(scores, i, j), valid, scores, mask, ends)


def mine_hardest(labels, score, dtype):
    """The quadruplet of the least similar positive pair, without scores of all pairs.

    It scores the positive pairs, and then only the negatives of the selected pair. Ties go to the
    first, as in `mine`.

    Args:
        labels: (n,) integers.
        score: Function from row numbers (m,) and (m,) to the scores of those pairs, (m,) floats.
        dtype: Dtype of the scores.

    Returns:
        `Quadruplets` with a single one.
    """
    count = ops.shape(labels)[0]
    index = ops.arange(count)
    order = ops.cast(ops.argsort(labels), index.dtype)
    ordered = ops.take(labels, order)
    start = ops.cast(ops.searchsorted(ordered, ordered, side="left"), index.dtype)
    size = ops.cast(ops.searchsorted(ordered, ordered, side="right"), index.dtype) - start
    # Each class is a circle: steps of up to half of it, from each row, give each pair once.
    steps = (size - 1 + ops.cast(index - start < size // 2, index.dtype)) // 2
    steps_before = ops.cumsum(steps) - steps
    pairs = ops.sum(steps)
    pairs_at_once = 3 * count // 2 + 1  # all pairs of classes of four

    def choose(first, lowest, place):
        pair = first + ops.arange(pairs_at_once, dtype=index.dtype)
        at = ops.searchsorted(steps_before, ops.minimum(pair, pairs - 1), side="right") - 1
        at = ops.cast(at, index.dtype)
        step = pair - ops.take(steps_before, at) + 1
        circle = ops.take(start, at)
        other = circle + (at - circle + step) % ops.take(size, at)
        row, other = ops.take(order, at), ops.take(order, other)
        scores = ops.where(pair < pairs, score(row, other), _NEVER)
        places = ops.minimum(row, other) * count + ops.maximum(row, other)
        lowest_here = ops.min(scores)
        place_here = ops.min(ops.where(scores == lowest_here, places, count * count))
        better = (lowest_here < lowest) | ((lowest_here == lowest) & (place_here < place))
        return (
            first + pairs_at_once,
            ops.where(better, lowest_here, lowest),
            ops.where(better, place_here, place),
        )

    _, pair_score, place = ops.while_loop(
        lambda first, lowest, place: first < pairs,
        choose,
        (
            ops.zeros((), dtype=index.dtype),
            ops.full((), _NEVER, dtype=dtype),
            ops.zeros((), dtype=index.dtype),
        ),
    )
    i, j = (place // count)[None], (place % count)[None]
    ends = ops.concatenate([i, j])
    scores = ops.reshape(score(ops.repeat(ends, count), ops.tile(index, [2])), (2, -1))
    mask = ops.take(labels, ends)[:, None] != labels[None, :]
    valid = (pair_score < _NEVER)[None]
    return _with_negatives(i, j, pair_score[None], valid, scores, mask, ops.arange(2)[:, None])


def _with_negatives(i, j, pair_scores, valid, scores, mask, ends):
    """Quadruplets of pairs (i, j); rows `ends`, (2, q), of the scores are those of i and of j."""
    among = ops.where(mask, scores, -_NEVER)
    lowest = ops.min(ops.where(mask, scores, _NEVER), axis=1)
    parts = ops.argmax(among, axis=1), ops.any(mask, axis=1), lowest, ops.max(among, axis=1)
    (k, l), exist, lows, highs = (ops.unstack(ops.take(part, ends)) for part in parts)  # noqa: E741
    return Quadruplets(
        i=ops.cast(i, "int32"),
        j=ops.cast(j, "int32"),
        k=ops.cast(k, "int32"),
        l=ops.cast(l, "int32"),
        valid=valid & exist[0] & exist[1],
        lowest=ops.minimum(pair_scores, ops.minimum(*lows)),
        highest=ops.maximum(pair_scores, ops.maximum(*highs)),
    )
