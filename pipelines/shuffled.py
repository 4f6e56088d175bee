"""Batches of images in a random order, whatever their classes."""

import tensorflow as tf

from pipelines.sampling import check_position, each_step, step_seed
from tfdml.checks import check, check_integer


def shuffled_indices(images, batch_size, seed=0, start_step=0):
    """Endless index batches of images in a random order, each image at most once an epoch.

    An epoch has n / m batches, rounded down: the n mod m images that are left are other ones in
    each epoch. Every batch is a function of (seed, step) alone.

    Args:
        images: n, number of images.
        batch_size: m, images of a batch; at most n.
        seed: Of the order of the images; >= 0 and below 2**63.
        start_step: Step of the first batch, or a function that returns it when iteration begins.

    Returns:
        `tf.data.Dataset` of (m,) int64 indices below n, all different.

    Raises:
        TypeError: If the batch size, the seed or the step is not an integer.
        ValueError: If the batch size is below 1 or above the number of images, or the seed or the
            step is below 0 or not below 2**63.
    """
    check_integer(1, batch_size=batch_size)
    check_position(seed, start_step)
    expectation = "`batch_size` must not exceed the number of images"
    check(batch_size <= images, expectation, batch_size=batch_size, images=images)
    batches_per_epoch = images // batch_size

    def indices_of(step):
        epoch, place = step // batches_per_epoch, step % batches_per_epoch
        places = place * batch_size + tf.range(batch_size, dtype=tf.int64)
        of_epoch = step_seed(seed, "images", epoch)
        return tf.random.experimental.index_shuffle(places, of_epoch, images - 1)

    return each_step(indices_of, start_step)
