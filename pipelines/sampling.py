"""Samplers: indices of the images of each batch, before any image is read."""

import warnings

import numpy as np
import tensorflow as tf

from tfdml.checks import (
    Bare,
    check,
    check_bool,
    check_integer,
    check_one_of,
    check_shapes,
    check_type,
)

SAMPLERS = ("balanced", "mixed")


def balanced_indices(
    labels, classes_per_batch, images_per_class, seed=0, start_step=0, sampler="balanced"
):
    """Endless index batches of P distinct classes with K distinct images each.

    Each epoch visits the classes once in a random order, P at a time (if P does not divide their
    number, the last few are left out); the K images of a class are drawn anew each time. A class
    with fewer than K images repeats them. Every batch is a function of (seed, step) alone, so a
    run can resume at any step without replaying earlier ones.

    Args:
        labels: (n,) integer class ids.
        classes_per_batch: P.
        images_per_class: K.
        seed: Of the order of classes and the draw of images; >= 0 and below 2**63.
        start_step: Step of the first batch, or a function that returns it when iteration begins.
        sampler: `"balanced"`, as above; or `"mixed"`, which draws K to 2 K images, uniformly, of
            one of the P classes after the other until the batch has P × K. The last class takes
            what is left; if that is less than K, it goes to the class before. Two classes have K
            images each, as otherwise a batch would have no negatives.

    Returns:
        `tf.data.Dataset` of (P × K,) int64 indices into `labels`, the rows of a class in a row.

    Raises:
        TypeError: If the labels, P, K, the seed or the step are not integers.
        ValueError: If P or K is below 1, P exceeds the number of classes, P × K is not below 2**31,
            the seed or the step is below 0 or not below 2**63, or `sampler` is unknown.
    """
    classes = rows_by_class(checked_labels(labels), least=1)
    by_class, first, counts = (tf.constant(part, tf.int64) for part in classes)
    check_integer(1, classes_per_batch=classes_per_batch, images_per_class=images_per_class)
    check_position(seed, start_step)
    received = {"classes_per_batch": classes_per_batch, "classes": len(counts)}
    needed = "`classes_per_batch` must not exceed the number of classes"
    check(classes_per_batch <= len(counts), needed, **received)
    check_one_of(SAMPLERS, sampler=sampler)
    batch = classes_per_batch * images_per_class
    needed = "`classes_per_batch` × `images_per_class` must be < 2**31"
    check(batch < 2**31, needed, **received, images_per_class=images_per_class)
    if images_per_class > 1:
        warn_of_single_images(counts)
    batches_per_epoch = len(counts) // classes_per_batch

    def indices_of(step):
        epoch, place = step // batches_per_epoch, step % batches_per_epoch
        order = shuffle(len(counts), step_seed(seed, "classes", epoch))
        classes = order[place * classes_per_batch :][:classes_per_batch]
        sizes = tf.gather(counts, classes)
        largest = tf.reduce_max(sizes)
        shape = [classes_per_batch, largest]
        keys = tf.random.stateless_uniform(shape, step_seed(seed, "images", step))
        present = tf.range(largest)[None, :] < sizes[:, None]
        drawn = tf.argsort(tf.where(present, keys, 2.0), axis=1)  # padding comes last
        shares = tf.fill([classes_per_batch], tf.constant(images_per_class, tf.int64))
        if sampler == "mixed" and classes_per_batch > 2:
            shares = _mixed_shares(shares, step_seed(seed, "shares", step))
        ends = tf.cumsum(shares)
        position = tf.range(batch, dtype=tf.int64)
        owner = tf.searchsorted(ends, position, side="right", out_type=tf.int64)
        turn = (position - tf.gather(ends - shares, owner)) % tf.gather(sizes, owner)
        within = tf.gather_nd(drawn, tf.stack([owner, turn], axis=1))
        rows = tf.gather(first, tf.gather(classes, owner)) + tf.cast(within, tf.int64)
        return tf.ensure_shape(tf.gather(by_class, rows), [batch])

    return each_step(indices_of, start_step)


def group_indices(
    labels,
    super_labels,
    classes_per_batch,
    batch_size,
    *,
    super_classes=2,
    images_per_class=None,
    evenly=False,
    seed=0,
    start_step=0,
):
    """Index batches of related classes: all images of some classes of few super-classes.

    Each batch draws G super-classes and P / G classes of each (all if it has fewer), both without
    replacement, and takes all their images. If these exceed the batch size, images are dropped at
    random, and then classes with a single image left; if that leaves one class of several, two
    images each of two classes are kept instead. Classes of a single image are never drawn, nor is a
    single super-class of a single class, unless P is 1. Every batch is a function of (seed, step)
    alone.

    Args:
        labels: (n,) integer class ids.
        super_labels: (n,) integer super-class ids, the same for all images of a class.
        classes_per_batch: P; G must divide it.
        batch_size: Most images of a batch; above P, so that no batch is empty, and with P > 1 at
            least 4, for two images of two classes.
        super_classes: G.
        images_per_class: Most images of a class, drawn at random, >= 2; all if None.
        evenly: Whether all super-classes, and all classes of one, are equally likely; if not, they
            are drawn one by one from those left, in proportion to their images.
        seed: Of all draws; >= 0 and below 2**63.
        start_step: Step of the first batch, or a function that returns it when iteration begins.

    Returns:
        `tf.data.Dataset` of (m,) int64 indices into `labels`, 2 <= m <= `batch_size`, all
        different, the rows of a class in a row, two or more; of at least two classes if P > 1.

    Raises:
        TypeError: If `evenly` is not a bool, or the labels or a number are not integers.
        ValueError: If there are fewer super-classes than G that have a class of 2 images, or with
            G = 1 two such classes, G does not divide P, or a number is out of its range.

    Source:
        Yuan, Yang, Zhang. Hard-aware deeply cascaded embedding. ICCV 2017, and its released code:
        10 classes each of 2 super-classes, 100 images; in proportion to the images for Stanford
        Online Products, evenly for In-shop Clothes and, with 5 images of a class, for VehicleID.
        Differs: the code reads the groups as one list, 100 lines at a time, so its batches begin
        and end anywhere in a group.
    """
    check_integer(1, classes_per_batch=classes_per_batch, super_classes=super_classes)
    least_size = 4 if classes_per_batch == 2 else classes_per_batch + 1
    check_integer(least_size, batch_size=batch_size)
    check_position(seed, start_step)
    if images_per_class is not None:
        check_integer(2, images_per_class=images_per_class)
    check_bool(evenly=evenly)
    received = {"super_classes": super_classes, "classes_per_batch": classes_per_batch}
    divides = classes_per_batch % super_classes == 0
    check(divides, "`super_classes` must divide `classes_per_batch`", **received)
    groups = _grouped(checked_labels(labels), np.asarray(super_labels))
    by_class, first, counts, starts, sizes, totals = map(tf.constant, groups)
    one_of_several = super_classes == 1 < classes_per_batch
    usable = sizes >= (2 if one_of_several else 1)
    classes = "2 classes" if one_of_several else "a class"
    of_pairs = f"the number of super-classes that have {classes} of 2 images or more"
    enough, found = f"`super_classes` must not exceed {of_pairs}", int(np.count_nonzero(usable))
    check(super_classes <= found, enough, super_classes=super_classes, found=found)
    most = images_per_class or tf.reduce_max(counts)

    def classes_of(step):
        weights = tf.where(usable, tf.ones_like(totals) if evenly else totals, 0)
        chosen = _draw(weights[None], super_classes, step_seed(seed, "super_classes", step))[0]
        widths = tf.gather(sizes, chosen)[:, None]
        place = tf.range(tf.reduce_max(widths))[None]
        members = tf.where(place < widths, tf.gather(starts, chosen)[:, None] + place, 0)
        weights = tf.ones_like(members) if evenly else tf.gather(counts, members)
        weights = tf.where(place < widths, weights, 0)
        share = classes_per_batch // super_classes
        columns = _draw(weights, share, step_seed(seed, "classes", step))
        there = tf.gather(weights, columns, batch_dims=1) > 0
        return tf.boolean_mask(tf.gather(members, columns, batch_dims=1), there)

    def indices_of(step):
        owner, turn, rows = rows_of(classes_of(step), first, counts)
        of_images = step_seed(seed, "images", step)
        keys = tf.random.stateless_uniform([2, tf.size(owner)], of_images, dtype=tf.float64)
        # Classes stay adjacent, each shuffled within; then images of high ranks are dropped.
        places = tf.argsort(tf.cast(owner, tf.float64) + keys[0])
        owner, turn, places, ranks = (
            tf.boolean_mask(each, turn < most) for each in (owner, turn, places, keys[1])
        )

        def fitting(ranks):
            lowest = tf.sort(tf.argsort(ranks)[:batch_size])
            classes = tf.gather(owner, lowest)
            return tf.boolean_mask(lowest, tf.gather(tf.math.bincount(classes), classes) > 1)

        kept = fitting(ranks)
        single = (owner[kept[0]] == owner[kept[-1]]) & (owner[-1] > 0)
        kept = fitting(ranks - tf.cast(single & (owner < 2) & (turn < 2), ranks.dtype))
        return tf.gather(by_class, tf.gather(rows, tf.gather(places, kept)))

    return each_step(indices_of, start_step)


def _grouped(labels, super_labels):
    """Classes of 2 images or more, in the order of their super-classes.

    Returns:
        `(by_class, first, counts, starts, sizes, totals)`: (n,) rows in the order of the classes'
        ids; (classes,) int32, first row and number of rows of each class; (super-classes,) int32,
        first class, number of classes and number of images of each super-class.
    """
    by_class, first, counts = rows_by_class(labels)
    of_class = super_labels[by_class[first]]
    order = np.argsort(of_class, kind="stable")
    first, counts = first[order], counts[order]
    _, starts, inverse, sizes = np.unique(
        of_class[order], return_index=True, return_inverse=True, return_counts=True
    )
    groups = (first, counts, starts, sizes, np.bincount(inverse, counts))
    return by_class, *(part.astype(np.int32) for part in groups)


def shuffle(count, seed):
    """The numbers from 0 to `count` - 1 in a random order, (count,) int32."""
    return tf.random.experimental.stateless_shuffle(tf.range(count), seed)


def rows_by_class(labels, least=2):
    """Rows sorted by class; first row and count of each class of `least` images or more."""
    by_class = np.argsort(labels, kind="stable")
    _, first, counts = np.unique(labels[by_class], return_index=True, return_counts=True)
    kept = counts >= least
    return by_class, first[kept].astype(np.int32), counts[kept].astype(np.int32)


def rows_of(classes, first, counts):
    """All rows of some classes, one class after the other.

    Args:
        classes: (m,) integers, indices into `first` and `counts`.
        first: (classes,) int32, first row of each class.
        counts: (classes,) int32, rows of each class.

    Returns:
        `(owner, turn, rows)`, three (n,) int32: the place of the row's class in `classes`, that of
        the row in its class, and the row.
    """
    sizes = tf.gather(counts, classes)
    owner = tf.repeat(tf.range(tf.size(classes)), sizes)
    turn = tf.range(tf.size(owner)) - tf.repeat(tf.cumsum(sizes, exclusive=True), sizes)
    return owner, turn, tf.gather(first, tf.gather(classes, owner)) + turn


def check_position(seed, start_step):
    """Raises an error unless the seed and the step, if it is known yet, are integers >= 0."""
    check_integer(0, seed=seed)
    if not callable(start_step):
        check_integer(0, start_step=start_step)


def first_step(start_step):
    """The `tf.data.Dataset` of one step, () int64; a function is called as iteration begins."""
    if not callable(start_step):
        return tf.data.Dataset.from_tensors(tf.constant(start_step, tf.int64))

    def called():
        step = tf.convert_to_tensor(start_step()).numpy()  # such as a variable of replicas
        check_integer(0, start_step=step)
        yield step

    return tf.data.Dataset.from_generator(called, output_signature=tf.TensorSpec([], tf.int64))


def all_steps(start_step, every=1):
    """The endless `tf.data.Dataset` of steps, () int64."""
    every = tf.constant(every, tf.int64)
    if callable(start_step):
        counter = tf.data.Dataset.counter
        return first_step(start_step).flat_map(lambda first: counter(first, every))
    return tf.data.Dataset.counter(tf.constant(start_step, tf.int64), every)


@tf.autograph.experimental.do_not_convert
def each_step(indices_of, start_step):
    """The endless `tf.data.Dataset` of a function of the step."""
    return all_steps(start_step).map(indices_of, num_parallel_calls=tf.data.AUTOTUNE)


def _draw(weights, count, seed):
    """Draws columns of each row one by one, in proportion to the weights.

    Args:
        weights: (rows, columns) integers; those of weight 0 come last.
        count: Columns to draw, without replacement; all if there are fewer.
        seed: (2,) int64.

    Returns:
        (rows, count) int32.
    """
    # The shortest of exponential waiting times is each one with odds of its rate.
    waits = -tf.math.log1p(-tf.random.stateless_uniform(tf.shape(weights), seed))
    waits = tf.where(weights > 0, waits / tf.cast(weights, tf.float32), np.inf)
    return tf.math.top_k(-waits, tf.minimum(count, tf.shape(weights)[1])).indices


def checked_labels(labels):
    """Returns the labels as an array; raises an error unless they are (n,) integers."""
    labels = np.asarray(labels)
    check_type(labels.dtype.kind in "iu", "`labels` must be integers", dtype=Bare(labels.dtype))
    one_each = "`labels` must be (n,) class ids; images of several labels take shuffled_batches"
    check_shapes(labels.ndim == 1, one_each, labels=labels)
    return labels


def warn_of_single_images(counts):
    """Warns if no class has two images, so that positive pairs are of an image with itself."""
    if np.max(counts) < 2:
        warnings.warn(
            "no class has 2 images or more: every positive pair is an image with itself, which "
            f"random augmentation alone makes differ. Received: classes={len(counts)}",
            stacklevel=4,
        )


def _mixed_shares(least, seed):
    """Images drawn of each class, (P,) int64: `least` to twice as many, or none."""
    wanted = tf.random.stateless_uniform(least.shape, seed, 0, least[0] + 1, tf.int64) + least
    left = tf.maximum(tf.reduce_sum(least) - tf.cumsum(wanted, exclusive=True), 0)
    shares = tf.where(left - wanted < least, left, wanted)
    return tf.where(left < least, tf.zeros_like(shares), shares)


def step_seed(seed, purpose, step):
    """(2,) int64 seed of one purpose at one step, for the stateless operations of TensorFlow."""
    purposes = ("classes", "images", "augmentation", "shares", "colour", "super_classes", "pairs")
    purposes += ("symmetry",)
    base = tf.constant([seed, purposes.index(purpose)], tf.int64)
    return tf.random.fold_in(base, step)
