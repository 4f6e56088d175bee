"""Batches of pairs, half positive and half negative, or with hard neighbours."""

import dataclasses

import numpy as np
import tensorflow as tf

from pipelines.samplers import constant, in_turn, ordered_by_class, warn_of_single_images
from tfdml.checks import check, check_fits, check_integer, check_type
from tfdml.quiet import progress

_BLOCK_BYTES = 2**25  # of float32 scores held at once
_BYTES_PER_PAIR = 40  # most that making the list of pairs takes


class HardNeighbours:
    """Nearest images of other classes for each image, by embeddings that training refreshes.

    Batches of steps s to s + `refresh_every` - 1 use the embeddings of step s, counted from the
    first step: call `refresh` at step s, before the first of them is taken, in `fit` through
    `tfdml.callbacks.EmbeddingsOfEpoch(images, neighbours.refresh)`. Taking a batch earlier, for
    example by a `prefetch` after the batches, raises an error.

    Args:
        labels: (n,) integer class ids, those of the split.
        batch_size: m, images of a batch; a multiple of 4.
        refresh_every: Steps from one refresh to the next, such as those of an epoch of `fit`.

    Raises:
        TypeError: If the labels or a number are not integers.
        ValueError: If a number is out of range, or batches of such labels cannot be made: these
            need m - 2 images outside every class, and m / 4 positive pairs.

    Source:
        Song, Xiang, Jegelka, Savarese. CVPR 2016, section 4: positive pairs at random, to which
        their difficult neighbours are added.
        Differs: in what the paper leaves open. Each image of m / 4 pairs adds one neighbour, by
        embeddings of all images without augmentation; the released code adds none.
    """

    def __init__(self, labels, batch_size, refresh_every):
        check_integer(1, refresh_every=refresh_every)
        labels = np.asarray(labels)
        _check_pairs(labels, batch_size, multiple_of=4)
        counts = np.unique(labels, return_counts=True)[1]
        _check_enough(int(np.sum(counts * (counts - 1)) // 2), batch_size // 4)
        # When the last one is added, the batch may have m - 3 of its candidates already.
        others = len(labels) - int(counts.max())
        needed = "there must be at least `batch_size` - 2 images outside every class"
        check(others >= batch_size - 2, needed, batch_size=batch_size, others=others)
        self.labels, self.batch_size, self.refresh_every = labels, batch_size, refresh_every
        self._step, self._nearest = None, np.empty([0, 0], np.int32)

    def refresh(self, step, embeddings):
        """Sets the embeddings that batches from a step on are made with.

        Args:
            step: Of the first of these batches: that of the first batch, or a multiple of
                `refresh_every` after it.
            embeddings: (n, dim) floats, one row per image; compared by Euclidean distance.

        Raises:
            ValueError: If they are not one row per image, or not finite.
        """
        embeddings = np.asarray(embeddings)
        matches = embeddings.ndim == 2 and len(embeddings) == len(self.labels)
        received = {"embeddings.shape": embeddings.shape, "images": len(self.labels)}
        check(matches, "`embeddings` must have one row per image", **received)
        if not np.isfinite(embeddings).all():
            raise ValueError("`embeddings` must be finite. Received: infinite numbers or NaN")
        self._nearest = nearest_of_other_classes(embeddings, self.labels, self.batch_size - 2)
        self._step = step

    def nearest(self, step, rows):
        """The (rows, m - 2) int32 of some rows; a RuntimeError if a step before was refreshed."""
        if self._step is None or not self._step <= step < self._step + self.refresh_every:
            needed = f"`refresh` must be called at step {step}, before its batch is taken"
            raise RuntimeError(f"{needed}. The last call was at step {self._step}")
        return self._nearest[rows]


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Pairs of images, about half of them positive, as in the lifted-structure paper.

    The list of pairs has every pair of two images of a class; every image paired with itself, as
    its random crops differ; and q negative pairs for each image, where q is the number of these
    positive pairs per image, rounded up. The partners in the negative pairs of a class are drawn
    from all images of other classes, none twice before each was drawn. Negative pairs are dropped
    at random until m / 2 divides the list. It is shuffled once; every epoch is one pass over it.
    It warns if no class has two images, and takes 8 bytes a pair.

    With hard neighbours a batch is m / 4 random positive pairs and, for each of their images in
    turn, the nearest image of another class that is not in the batch yet: a function of (seed,
    step) and the embeddings of the last refresh.

    Args:
        batch_size: m, images of a batch: even, or a multiple of 4 with hard neighbours. The left
            images of the pairs come first, then the right ones, then the neighbours of both.
        hard_neighbours: `HardNeighbours` of the labels of the split and this batch size, or None.

    Source:
        Song, Xiang, Jegelka, Savarese. CVPR 2016, section 5, and its released code: batches of 64
        pairs; for Stanford Online Products 177,092 positive pairs, 59,551 of an image with itself
        and 4 negative ones per image, 7,419 batches.
        Differs: the code fails for a class of a single image, which here has the pair with itself,
        and where the negative pairs of a class need more images than the other classes have.
    """

    batch_size: int
    hard_neighbours: HardNeighbours | None = None

    def __post_init__(self):
        check_integer(2, batch_size=self.batch_size)
        neighbours = self.hard_neighbours
        known = neighbours is None or isinstance(neighbours, HardNeighbours)
        expected = "`hard_neighbours` must be a `HardNeighbours` or None"
        check_type(known, expected, hard_neighbours=neighbours)

    @property
    def refresh_every(self):
        return self.hard_neighbours and self.hard_neighbours.refresh_every

    def indices(self, split, seed, step):
        split.check_one_label("images of pairs")
        labels, size, neighbours = split.labels, self.batch_size, self.hard_neighbours
        if neighbours is not None:
            suits = neighbours.batch_size == size and np.array_equal(neighbours.labels, labels)
            expected = "`hard_neighbours` must have the labels of the split and this batch size"
            received = {"batch_size": size, "hard_neighbours.batch_size": neighbours.batch_size}
            check(suits, expected, **received)
            pairs, count, purpose = positive_pairs(labels), size // 4, "pairs"
        else:
            _check_pairs(labels, size, multiple_of=2)
            warn_of_single_images(np.unique(labels, return_counts=True)[1])
            count, purpose = size // 2, None
            pairs = all_pairs(labels, count, seed)
        places = in_turn(pairs.shape[1], count, seed, step, purpose)
        drawn = tf.gather(constant(pairs), places, axis=1)
        drawn = tf.cast(tf.reshape(drawn, [2 * count]), tf.int64)
        return drawn if neighbours is None else _with_neighbours(drawn, neighbours, step)


def _with_neighbours(drawn, neighbours, step):
    """The rows of m / 4 pairs, and the nearest image that each adds."""
    half = neighbours.batch_size // 2
    nearest = tf.numpy_function(neighbours.nearest, [step, drawn], tf.int32)
    nearest = tf.cast(tf.ensure_shape(nearest, [half, neighbours.batch_size - 2]), tf.int64)
    chosen = tf.pad(drawn, [[0, half]], constant_values=-1)

    def add(place, chosen):
        free = tf.reduce_all(nearest[place][:, None] != chosen[None, :], axis=1)
        added = nearest[place][tf.argmax(tf.cast(free, tf.int32))]
        return place + 1, tf.tensor_scatter_nd_update(chosen, [[half + place]], [added])

    return tf.while_loop(lambda place, _: place < half, add, [0, chosen])[1]


def _check_pairs(labels, batch_size, multiple_of):
    check_integer(multiple_of, batch_size=batch_size)
    divides = batch_size % multiple_of == 0
    check(divides, f"`batch_size` must be a multiple of {multiple_of}", batch_size=batch_size)
    classes = len(np.unique(labels))
    check(classes >= 2, "negative pairs need 2 classes or more", classes=classes)


def _check_enough(pairs, count):
    received = {"pairs": pairs, "of a batch": count}
    check(pairs >= count, "a batch must not take more pairs than there are", **received)


def all_pairs(labels, multiple, seed):
    """The shuffled list of `Pairs`, of a multiple of `multiple` pairs: (2, pairs) int32."""
    rng = np.random.default_rng(seed)
    itself = np.arange(len(labels), dtype=np.int32)
    positives = np.concatenate([positive_pairs(labels), [itself, itself]], axis=1)
    negatives = _negative_pairs(labels, -(-positives.shape[1] // len(labels)), rng)
    total = positives.shape[1] + negatives.shape[1]
    _check_enough(total, multiple)
    left_out = rng.choice(negatives.shape[1], total % multiple, replace=False)
    pairs = np.concatenate([positives, np.delete(negatives, left_out, axis=1)], axis=1)
    return rng.permutation(pairs, axis=1)


def positive_pairs(labels):
    """Every pair of two images of a class, once: (2, pairs) int32."""
    by_class, first, sizes = ordered_by_class(labels)
    number = int((sizes * (sizes - 1.0)).sum() / 2)
    check_fits(_BYTES_PER_PAIR * number, "all pairs of images of a class", pairs=number)
    following = np.repeat(first + sizes, sizes) - np.arange(len(labels)) - 1  # in the same class
    left = np.repeat(np.arange(len(labels)), following)
    right = np.arange(len(left)) - (np.cumsum(following) - following)[left] + left + 1
    by_class = by_class.astype(np.int32)
    return np.stack([by_class[left], by_class[right]])


def _negative_pairs(labels, per_image, rng):
    """`per_image` pairs of each image with images of other classes: (2, pairs) int32."""
    by_class, first, sizes = ordered_by_class(labels)
    draws = []
    for size in sizes.tolist():
        others, wanted = len(labels) - size, per_image * size
        draws += [rng.permutation(others) for _ in range(wanted // others)]
        draws.append(rng.choice(others, wanted % others, replace=False))
    drawn = np.concatenate(draws)
    begin, own = (np.repeat(each, per_image * sizes) for each in (first, sizes))
    drawn += np.where(drawn >= begin, own, 0)  # skips those of the class itself
    by_class = by_class.astype(np.int32)
    return np.stack([np.repeat(by_class, per_image), by_class[drawn]])


def nearest_of_other_classes(embeddings, labels, count):
    """The `count` nearest rows of other classes for each row, nearest first: (n, count) int32."""
    classes = np.unique(labels, return_inverse=True)[1]
    # Centred, or rounding would swamp the distances of rows far from the origin.
    rows = (embeddings - np.mean(embeddings, axis=0, dtype=np.float64)).astype(np.float32)
    nearest = np.empty((len(rows), count), np.int32)
    block = max(1, _BLOCK_BYTES // (4 * len(rows)))
    blocks = progress("Finding hard neighbours", range(0, len(rows), block), unit="block")
    with tf.device("CPU:0"):  # on a GPU TensorFlow multiplies in lower precision
        rows, classes = tf.constant(rows), tf.constant(classes)
        half_norms = tf.reduce_sum(tf.square(rows), axis=1) / 2.0
        for first in blocks:
            some = slice(first, first + block)
            scores = tf.matmul(rows[some], rows, transpose_b=True) - half_norms
            scores = tf.where(classes[some, None] == classes, -np.inf, scores)
            nearest[some] = tf.math.top_k(scores, count).indices.numpy()
    return nearest
