"""Which images form a batch: index arithmetic, before any image is read."""

import numbers

import numpy as np
import tensorflow as tf

SAMPLERS = ("balanced", "mixed")


def balanced_indices(
    labels, classes_per_batch, images_per_class, seed=0, start_step=0, sampler="balanced"
):
    """Indices of batches of P distinct classes with K distinct images each, without end.

    Each epoch visits the classes once in a random order, P at a time (where P does not divide
    their number, the last few wait for another epoch); the K images of a class are drawn anew. A
    class with fewer than K images repeats them. Every batch is a function of (seed, step)
    alone, so that a run resumes at any step at once.

    Args:
        labels: (n,) integer class ids.
        classes_per_batch: P.
        images_per_class: K.
        seed: Of the order of classes and the draw of images; >= 0 and below 2**63.
        start_step: Step of the first batch.
        sampler: `"balanced"`, as above; or `"mixed"`, which gives the first of the P classes K to
            2 K images each, evenly drawn, until P × K are full. The last one takes what is left;
            less than K of it goes to the class before.

    Returns:
        `tf.data.Dataset` of (P × K,) int64 indices into `labels`, the rows of a class in a row.

    Raises:
        TypeError: If P, K, the seed or the step is not an integer.
        ValueError: If P or K is below 1, P exceeds the number of classes, the seed or the step is
            below 0 or not below 2**63, or `sampler` is neither.
    """
    labels = np.asarray(labels)
    _, counts = np.unique(labels, return_counts=True)
    check_integers(1, classes_per_batch=classes_per_batch, images_per_class=images_per_class)
    check_integers(0, seed=seed, start_step=start_step)
    if classes_per_batch > len(counts):
        raise ValueError(
            "`classes_per_batch` must not exceed the number of classes. "
            f"Received: classes_per_batch={classes_per_batch}, classes={len(counts)}"
        )
    if sampler not in SAMPLERS:
        raise ValueError(f"`sampler` must be one of {SAMPLERS}. Received: sampler={sampler!r}")
    batch = classes_per_batch * images_per_class
    by_class = tf.constant(np.argsort(labels, kind="stable"), tf.int64)
    first = tf.constant(np.cumsum(counts) - counts, tf.int64)
    counts = tf.constant(counts, tf.int64)
    batches_per_epoch = counts.shape[0] // classes_per_batch

    def indices_of(step):
        epoch, place = step // batches_per_epoch, step % batches_per_epoch
        order = tf.random.experimental.stateless_shuffle(
            tf.range(counts.shape[0]), step_seed(seed, "classes", epoch)
        )
        classes = order[place * classes_per_batch :][:classes_per_batch]
        sizes = tf.gather(counts, classes)
        keys = tf.random.stateless_uniform(
            [classes_per_batch, tf.reduce_max(sizes)], step_seed(seed, "images", step)
        )
        present = tf.range(tf.reduce_max(sizes))[None, :] < sizes[:, None]
        drawn = tf.argsort(tf.where(present, keys, 2.0), axis=1)  # those absent come last
        shares = tf.fill([classes_per_batch], tf.constant(images_per_class, tf.int64))
        if sampler == "mixed":
            shares = _mixed_shares(shares, step_seed(seed, "shares", step))
        ends = tf.cumsum(shares)
        position = tf.range(batch, dtype=tf.int64)
        owner = tf.searchsorted(ends, position, side="right", out_type=tf.int64)
        turn = (position - tf.gather(ends - shares, owner)) % tf.gather(sizes, owner)
        within = tf.gather_nd(drawn, tf.stack([owner, turn], axis=1))
        rows = tf.gather(first, tf.gather(classes, owner)) + tf.cast(within, tf.int64)
        return tf.ensure_shape(tf.gather(by_class, rows), [batch])

    steps = tf.data.Dataset.counter(tf.constant(start_step, tf.int64))
    return steps.map(indices_of, num_parallel_calls=tf.data.AUTOTUNE)


def check_integers(least, **values):
    """Raises a TypeError or ValueError unless each is an integer of 64 bits, `least` or above."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, numbers.Integral):
            raise TypeError(f"`{name}` must be an integer. Received: {name}={value!r}")
        if value < least:
            raise ValueError(f"`{name}` must be >= {least}. Received: {name}={value}")
        if value >= 2**63:
            raise ValueError(f"`{name}` must be < 2**63. Received: {name}={value}")


def _mixed_shares(least, seed):
    """How many images each class gives, (P,) int64: `least` of each to twice as many, or none."""
    wanted = tf.random.stateless_uniform(least.shape, seed, 0, least[0] + 1, tf.int64) + least
    left = tf.maximum(tf.reduce_sum(least) - tf.cumsum(wanted, exclusive=True), 0)
    shares = tf.where(left - wanted < least, left, wanted)
    return tf.where(left < least, tf.zeros_like(shares), shares)


def step_seed(seed, purpose, step):
    """(2,) int64 seed of one purpose at one step, for the stateless operations of TensorFlow."""
    purposes = ("classes", "images", "augmentation", "shares", "colour")
    base = tf.constant([seed, purposes.index(purpose)], tf.int64)
    return tf.random.fold_in(base, step)
