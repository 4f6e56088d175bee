"""Batches of whole classes: classes are added until the batch is full."""

import tensorflow as tf

from pipelines.sampling import (
    check_position,
    checked_labels,
    first_step,
    rows_by_class,
    rows_of,
    shuffle,
    step_seed,
)
from tfdml.checks import check, check_integer


def whole_class_indices(labels, batch_size, seed=0, start_step=0):
    """Endless index batches of all images of random classes, as many as fit.

    Each epoch visits the classes in a random order, each at most once. A batch takes whole classes
    while they fit and fills the remaining places with random images of the next class; its other
    images are left out. A single remaining place stays empty, as one image of a class has no
    positive. Every batch is a function of (seed, step) alone, so the number of batches per epoch
    cannot depend on the order: with n images and a largest class of k it is n / (m - 2 + k),
    rounded down, and the remaining classes are left out. Classes of a single image are never drawn.

    Args:
        labels: (n,) integer class ids.
        batch_size: Most images of a batch, m; at least the size of the largest class + 2, so that
            every batch has negatives.
        seed: Of the order of classes and the images left out; >= 0 and below 2**63.
        start_step: Step of the first batch, or a function that returns it when iteration begins.

    Returns:
        `tf.data.Dataset` of (m,) or (m - 1,) int64 indices into `labels`, all different, the rows
        of a class in a row, two or more; of all images if they do not fill one batch.

    Raises:
        TypeError: If the labels, the batch size, the seed or the step are not integers.
        ValueError: If the batch size is too small, fewer than 2 classes have 2 images, or the seed
            or the step is below 0 or not below 2**63.

    Source:
        Li, Yao, Chao, Chen, Mei. Density adaptivity in deep metric learning. 2019, section IV-A:
        for Stanford Online Products, all images of randomly sampled classes until the batch of
        100 is full.
        Differs: the paper does not say what becomes of a class that does not fit, nor whether a
        class may come again before the others have.
    """
    check_integer(4, batch_size=batch_size)
    check_position(seed, start_step)
    by_class, first, counts = rows_by_class(checked_labels(labels))
    needed = "batches of whole classes need 2 or more classes with 2 or more images"
    check(len(counts) >= 2, needed, classes=len(counts))
    largest = int(counts.max())
    received = {"batch_size": batch_size, "largest": largest}
    needed = "`batch_size` must be at least the size of the largest class + 2, so that every batch"
    check(batch_size >= largest + 2, f"{needed} has 2 classes", **received)
    # A batch uses up at most m - 2 images and one class that fills the 2 remaining places.
    batches_per_epoch = max(1, int(counts.sum()) // (batch_size - 2 + largest))
    by_class, first, counts = map(tf.constant, (by_class, first, counts))

    @tf.autograph.experimental.do_not_convert
    def epoch_of(epoch, begin):
        order = shuffle(tf.size(counts), step_seed(seed, "classes", epoch))
        following = _following(tf.gather(counts, order), batch_size)
        ends = tf.scan(lambda begin, _: following[begin], tf.range(batches_per_epoch), 0)
        begins = tf.concat([[0], ends[:-1]], axis=0)

        def indices_of(step):
            place = step - epoch * batches_per_epoch
            return images_of(order[begins[place] : ends[place]], step)

        steps = tf.data.Dataset.range(
            tf.maximum(epoch * batches_per_epoch, begin), (epoch + 1) * batches_per_epoch
        )
        return steps.map(indices_of, num_parallel_calls=tf.data.AUTOTUNE)

    def images_of(classes, step):
        owner, _, rows = rows_of(classes, first, counts)
        of_images = step_seed(seed, "images", step)
        keys = tf.random.stateless_uniform(tf.shape(owner), of_images, dtype=tf.float64)
        places = tf.argsort(tf.cast(owner, tf.float64) + keys)[:batch_size]  # class by class
        return tf.gather(by_class, tf.gather(rows, places))

    def epochs_from(step):
        epochs = tf.data.Dataset.counter(step // batches_per_epoch)
        return epochs.flat_map(lambda epoch: epoch_of(epoch, step))

    return first_step(start_step).flat_map(epochs_from)


def _following(sizes, batch_size):
    """For each class, the class that begins the next batch if this one begins a batch.

    Args:
        sizes: (classes,) int32, images of the classes in their order.
        batch_size: Most images of a batch.

    Returns:
        (classes + 1,) int32; the end maps to itself.
    """
    bounds = tf.concat([[0], tf.cumsum(sizes)], axis=0)
    fitting = tf.searchsorted(bounds, bounds + batch_size, side="right") - 1
    room = batch_size - (tf.gather(bounds, fitting) - bounds)
    return tf.minimum(fitting + tf.cast(room >= 2, tf.int32), tf.size(sizes))
