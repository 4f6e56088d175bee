"""Batches of pairs, half positive and half negative."""

import numpy as np
import tensorflow as tf

from pipelines.sampling import (
    check_position,
    checked_labels,
    each_step,
    rows_by_class,
    step_seed,
    warn_of_single_images,
)
from tfdml.checks import check, check_bool, check_fits, check_integer

_BYTES_PER_PAIR = 40  # most that making the list of pairs takes


def pair_indices(labels, batch_size, *, reshuffle=False, seed=0, start_step=0):
    """Indices of batches of m / 2 pairs from a list of all positive and as many negative pairs.

    The list has every pair of two images of a class; every image paired with itself, as its random
    crops differ; and q negative pairs for each image, where q is the number of these positive pairs
    per image, rounded up. The partners in the negative pairs of a class are drawn from all images
    of other classes, none twice before each was drawn. Negative pairs are dropped at random until
    m / 2 divides the list. It is shuffled once, and an epoch is one pass over it: a batch of few
    pairs may have no negative one. Every batch is a function of (seed, step) alone. It warns if no
    class has two images.

    Args:
        labels: (n,) integer class ids.
        batch_size: m, images of a batch; even.
        reshuffle: Whether each epoch shuffles the list anew; if not, every epoch repeats the
            batches of the first.
        seed: Of the draw and the order of the pairs; >= 0 and below 2**63.
        start_step: Step of the first batch, or a function that returns it when iteration begins.

    Returns:
        `tf.data.Dataset` of (m,) int64 indices into `labels`: the left ones of the pairs, then the
        right ones in the same order. The list takes 8 bytes a pair.

    Raises:
        TypeError: If `reshuffle` is not a bool, or the labels or a number are not integers.
        ValueError: If there is a single class, the batch size is odd, below 2 or above that of all
            pairs, or the seed or the step is below 0 or not below 2**63.

    Source:
        Song, Xiang, Jegelka, Savarese. Deep metric learning via lifted structured feature
        embedding. CVPR 2016, section 5, and its released code: batches of 64 pairs; for Stanford
        Online Products 177,092 positive pairs, 59,551 of an image with itself and 4 negative ones
        per image, 7,419 batches.
        Differs: the code fails for a class of a single image, which here has the pair with itself,
        and where the negative pairs of a class need more images than the other classes have.
    """
    labels = checked_labels(labels)
    check_position(seed, start_step)
    check_bool(reshuffle=reshuffle)
    check_pairs(labels, batch_size, multiple_of=2)
    warn_of_single_images(np.unique(labels, return_counts=True)[1])
    pairs = all_pairs(labels, batch_size // 2, seed)
    draw = pairs_in_turn(pairs, batch_size // 2, seed, reshuffle)
    return each_step(lambda step: tf.reshape(draw(step), [batch_size]), start_step)


def check_pairs(labels, batch_size, multiple_of):
    """Raises a TypeError or ValueError if batches of pairs cannot have this size."""
    check_integer(multiple_of, batch_size=batch_size)
    of_pairs = f"`batch_size` must be a multiple of {multiple_of}"
    check(batch_size % multiple_of == 0, of_pairs, batch_size=batch_size)
    classes = len(np.unique(labels))
    check(classes >= 2, "negative pairs need 2 classes or more", classes=classes)


def check_enough(pairs, count):
    """Raises a ValueError if there are fewer pairs than a batch takes."""
    received = {"pairs": pairs, "of a batch": count}
    check(pairs >= count, "a batch must not take more pairs than there are", **received)


def pairs_in_turn(pairs, count, seed, reshuffle):
    """Returns a function from the step to the next `count` of the (2, n) pairs: (2, count)."""
    total = pairs.shape[1]
    steps_per_epoch = total // count
    pairs = tf.constant(pairs)

    def draw(step):
        epoch, place = step // steps_per_epoch, step % steps_per_epoch
        places = place * count + tf.range(count, dtype=tf.int64)
        if reshuffle:
            places = tf.random.experimental.index_shuffle(
                places, step_seed(seed, "pairs", epoch), total - 1
            )
        return tf.cast(tf.gather(pairs, places, axis=1), tf.int64)

    return draw


def all_pairs(labels, multiple, seed):
    """The shuffled list of `pair_indices`, of a multiple of `multiple` pairs: (2, pairs) int32."""
    rng = np.random.default_rng(seed)
    itself = np.arange(len(labels), dtype=np.int32)
    positives = np.concatenate([positive_pairs(labels), [itself, itself]], axis=1)
    negatives = _negative_pairs(labels, -(-positives.shape[1] // len(labels)), rng)
    total = positives.shape[1] + negatives.shape[1]
    check_enough(total, multiple)
    left_out = rng.choice(negatives.shape[1], total % multiple, replace=False)
    pairs = np.concatenate([positives, np.delete(negatives, left_out, axis=1)], axis=1)
    return rng.permutation(pairs, axis=1)


def positive_pairs(labels):
    """Every pair of two images of a class, once: (2, pairs) int32."""
    by_class, first, sizes = rows_by_class(labels, least=1)
    number = int((sizes * (sizes - 1.0)).sum() / 2)
    check_fits(_BYTES_PER_PAIR * number, "all pairs of images of a class", pairs=number)
    following = np.repeat(first + sizes, sizes) - np.arange(len(labels)) - 1  # in the same class
    left = np.repeat(np.arange(len(labels)), following)
    right = np.arange(len(left)) - (np.cumsum(following) - following)[left] + left + 1
    by_class = by_class.astype(np.int32)
    return np.stack([by_class[left], by_class[right]])


def _negative_pairs(labels, per_image, rng):
    """`per_image` pairs of each image with images of other classes: (2, pairs) int32."""
    by_class, first, sizes = rows_by_class(labels, least=1)
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
