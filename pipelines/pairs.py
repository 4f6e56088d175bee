"""Batches of pairs, half positive and half negative."""

import dataclasses

import numpy as np
import tensorflow as tf

from pipelines.hard_neighbours import HardNeighbours, check_enough, check_pairs, positive_pairs
from pipelines.sampling import (
    constant,
    divided,
    ordered_by_class,
    step_seed,
    warn_of_single_images,
)
from tfdml.checks import check_bool, check_integer, check_type


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Pairs of images, about half of them positive, as in the lifted-structure paper.

    The list of pairs has every pair of two images of a class; every image paired with itself, as
    its random crops differ; and q negative pairs for each image, where q is the number of these
    positive pairs per image, rounded up. The partners in the negative pairs of a class are drawn
    from all images of other classes, none twice before each was drawn. Negative pairs are dropped
    at random until m / 2 divides the list. It is shuffled once, and an epoch is one pass over it: a
    batch of few pairs may have no negative one. It warns if no class has two images, and takes 8
    bytes a pair.

    With hard neighbours a batch is m / 4 random positive pairs and, for each of their images in
    turn, the nearest image of another class that is not in the batch yet: a function of (seed,
    step) and the embeddings of the last refresh.

    Args:
        batch_size: m, images of a batch: even, or a multiple of 4 with hard neighbours. The left
            images of the pairs come first, then the right ones, then the neighbours of both.
        hard_neighbours: `HardNeighbours` of the labels of the split and this batch size, or None.
        reshuffle: Whether each epoch shuffles its pairs anew; if not, every epoch repeats the
            batches of the first. With hard neighbours it always does.

    Source:
        Song, Xiang, Jegelka, Savarese. Deep metric learning via lifted structured feature
        embedding. CVPR 2016, section 5, and its released code: batches of 64 pairs; for Stanford
        Online Products 177,092 positive pairs, 59,551 of an image with itself and 4 negative ones
        per image, 7,419 batches.
        Differs: the code fails for a class of a single image, which here has the pair with itself,
        and where the negative pairs of a class need more images than the other classes have.
    """

    batch_size: int
    hard_neighbours: HardNeighbours | None = None
    reshuffle: bool = False

    def __post_init__(self):
        check_integer(2, batch_size=self.batch_size)
        check_bool(reshuffle=self.reshuffle)
        neighbours = self.hard_neighbours
        known = neighbours is None or isinstance(neighbours, HardNeighbours)
        expected = "`hard_neighbours` must be a `HardNeighbours` or None"
        check_type(known, expected, hard_neighbours=neighbours)

    @property
    def refresh_every(self):
        """Steps that can be made before the neighbours are refreshed; None for any number."""
        return self.hard_neighbours and self.hard_neighbours.refresh_every

    def indices(self, split, seed, step):
        split.check_one_label("images of pairs")
        if self.hard_neighbours is not None:
            self.hard_neighbours.check_suits(split.labels, self.batch_size)
            return _with_neighbours(self.hard_neighbours, seed, step)
        check_pairs(split.labels, self.batch_size, multiple_of=2)
        warn_of_single_images(np.unique(split.labels, return_counts=True)[1])
        half = self.batch_size // 2
        drawn = _in_turn(all_pairs(split.labels, half, seed), half, seed, step, self.reshuffle)
        return tf.reshape(drawn, [self.batch_size])


def _with_neighbours(neighbours, seed, step):
    """The rows of m / 4 pairs, and the nearest image that each adds."""
    half = neighbours.batch_size // 2
    pairs = positive_pairs(neighbours.labels)
    drawn = tf.reshape(_in_turn(pairs, half // 2, seed, step, reshuffle=True), [half])
    nearest = tf.numpy_function(neighbours.nearest, [step, drawn], tf.int32)
    nearest = tf.cast(tf.ensure_shape(nearest, [half, neighbours.batch_size - 2]), tf.int64)
    chosen = tf.pad(drawn, [[0, half]], constant_values=-1)

    def add(place, chosen):
        free = tf.reduce_all(nearest[place][:, None] != chosen[None, :], axis=1)
        added = nearest[place][tf.argmax(tf.cast(free, tf.int32))]
        return place + 1, tf.tensor_scatter_nd_update(chosen, [[half + place]], [added])

    return tf.while_loop(lambda place, _: place < half, add, [0, chosen])[1]


def _in_turn(pairs, count, seed, step, reshuffle):
    """The `count` of the (2, n) pairs that come at a step: (2, count) int64."""
    total = pairs.shape[1]
    epoch, place = divided(step, total // count)
    places = place * count + tf.range(count, dtype=tf.int64)
    if reshuffle:
        epoch_seed = step_seed(seed, "pairs", epoch)
        places = tf.random.experimental.index_shuffle(places, epoch_seed, total - 1)
    return tf.cast(tf.gather(constant(pairs), places, axis=1), tf.int64)


def all_pairs(labels, multiple, seed):
    """The shuffled list of `Pairs`, of a multiple of `multiple` pairs: (2, pairs) int32."""
    rng = np.random.default_rng(seed)
    itself = np.arange(len(labels), dtype=np.int32)
    positives = np.concatenate([positive_pairs(labels), [itself, itself]], axis=1)
    negatives = _negative_pairs(labels, -(-positives.shape[1] // len(labels)), rng)
    total = positives.shape[1] + negatives.shape[1]
    check_enough(total, multiple)
    left_out = rng.choice(negatives.shape[1], total % multiple, replace=False)
    pairs = np.concatenate([positives, np.delete(negatives, left_out, axis=1)], axis=1)
    return rng.permutation(pairs, axis=1)


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
