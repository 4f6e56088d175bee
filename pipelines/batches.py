"""Batches of images, or of other inputs, to train on, one function for each sampler."""

import tensorflow as tf

from pipelines.hard_neighbours import HardNeighbours, hard_pairs
from pipelines.loading import batches_of, check_is, checked, loader
from pipelines.pairs import pair_indices
from pipelines.parallel import on_all_cores
from pipelines.sampling import all_steps, balanced_indices, check_position, group_indices
from pipelines.shuffled import shuffled_indices
from pipelines.whole_classes import whole_class_indices
from tfdml.checks import check_bool


def balanced_batches(
    split,
    classes_per_batch,
    images_per_class,
    seed=0,
    image_size=None,
    augmentation=None,
    start_step=0,
    sampler="balanced",
    *,
    preprocessing=None,
    part=(0, 1),
):
    """Endless batches of P classes × K images, each a function of (seed, step) alone.

    With K = 2 it is the sampler of the N-pair loss (Sohn, NIPS 2016): an anchor and a positive of
    each of N classes. They are adjacent here; other implementations put all anchors before all
    positives. A loss that reads the labels gives the same value for both.

    Args:
        split: `Split` to draw from.
        classes_per_batch: P, distinct classes.
        images_per_class: K, distinct images of each (a smaller class repeats its images).
        seed: Of the choice of images and of their augmentation.
        image_size: (height, width, channels), for paths 1 or 3 channels; that of the images if
            None; required for paths.
        augmentation: `Augmentation`, or None for none.
        start_step: Step of the first batch. To resume, the optimizer's number of steps, plus the
            batches whose update it skipped; or a function that returns it, called when iteration
            begins: by `lambda: model.optimizer.iterations` a `fit` that is resumed by
            `keras.callbacks.BackupAndRestore` goes on with the batches that would have come.
        sampler: `"balanced"` for K images of each class, or `"mixed"` for K to 2 K of fewer.
        preprocessing: `Preprocessing`, or None to only resize. An augmentation with `crop` below 1
            replaces its random crop.
        part: (i, n) for the rows of the i-th of n equal parts of every batch, for a worker of
            several; other images are not read. n must divide the batch.

    Returns:
        `tf.data.Dataset` of `(images, labels)`: (P × K, height, width, channels) float32 in
        [0, 255] and (P × K,) int64, the rows of a class in a row. Of a split of `inputs`, as of
        all samplers, `(inputs, labels)`: its rows as they are.

    Raises:
        TypeError: If P, K, the seed or the step is not an integer, `split` not a `Split` or
            `augmentation` not an `Augmentation`.
        ValueError: If one of them is out of range, or `image_size` does not suit these images, is
            missing for paths, or is given for `inputs`.
    """
    making = checked(split, image_size, augmentation, preprocessing)
    indices = balanced_indices(
        split.labels, classes_per_batch, images_per_class, seed, start_step, sampler
    )
    batch = classes_per_batch * images_per_class
    return batches_of(making, indices, batch, seed, start_step, part)


def group_batches(
    split,
    classes_per_batch,
    batch_size,
    seed=0,
    image_size=None,
    augmentation=None,
    start_step=0,
    *,
    super_classes=2,
    images_per_class=None,
    evenly=False,
    preprocessing=None,
):
    """Endless batches of related classes, each a function of (seed, step) alone.

    Each has all images of P classes of G super-classes, P / G of each, as far as they fit. So many
    of its negative pairs are of one super-class: hard negatives. `group_indices` in
    `pipelines/sampling.py` has the details.

    Args:
        split: `Split` with `super_labels`.
        classes_per_batch: P, distinct classes; fewer where a super-class has fewer than P / G or
            a single image of a class is left, but two or more unless P is 1.
        batch_size: Most images of a batch, above P, and at least 4 unless P is 1; surplus images
            are dropped at random.
        seed: Of the choice of images and of their augmentation.
        image_size: As for `balanced_batches`.
        augmentation: `Augmentation`, or None for none.
        start_step: As for `balanced_batches`.
        super_classes: G, which must divide P.
        images_per_class: Most images of a class, >= 2; all if None.
        evenly: Whether all super-classes, and all classes of one, are equally likely; if not, in
            proportion to their images.
        preprocessing: As for `balanced_batches`.

    Returns:
        `tf.data.Dataset` of `(images, labels)`: (m, height, width, channels) float32 in [0, 255]
        and (m,) int64, 2 <= m <= `batch_size`, the rows of a class in a row, two or more.

    Raises:
        TypeError: If a number is not an integer, `evenly` not a bool, `split` not a `Split` or
            `augmentation` not an `Augmentation`.
        ValueError: If the split has no `super_labels` or too few super-classes, a number is out of
            range, or `image_size` does not suit these images or is missing for paths.
    """
    making = checked(split, image_size, augmentation, preprocessing)
    split.check_super_labels()
    indices = group_indices(
        split.labels,
        split.super_labels,
        classes_per_batch,
        batch_size,
        super_classes=super_classes,
        images_per_class=images_per_class,
        evenly=evenly,
        seed=seed,
        start_step=start_step,
    )
    return batches_of(making, indices, batch_size, seed, start_step)


def whole_class_batches(
    split,
    batch_size,
    seed=0,
    image_size=None,
    augmentation=None,
    start_step=0,
    *,
    preprocessing=None,
):
    """Endless batches of all images of random classes, as many as fit.

    Each is a function of (seed, step) alone. A class that does not fit is cut to the remaining
    places if these are 2 or more. `whole_class_indices` in `pipelines/whole_classes.py` has the
    details.

    Args:
        split: `Split` to draw from.
        batch_size: Most images of a batch, m; at least the size of the largest class + 2.
        seed: Of the choice of images and of their augmentation.
        image_size: As for `balanced_batches`.
        augmentation: `Augmentation`, or None for none.
        start_step: As for `balanced_batches`.
        preprocessing: As for `balanced_batches`.

    Returns:
        `tf.data.Dataset` of `(images, labels)`: (m or m - 1, height, width, channels) float32 in
        [0, 255] and their int64 labels, the rows of a class in a row, two or more. Fewer rows
        if all images do not fill a batch.

    Raises:
        TypeError: If a number is not an integer, `split` not a `Split` or `augmentation` not an
            `Augmentation`.
        ValueError: If fewer than 2 classes have 2 images, a number is out of range, or `image_size`
            does not suit these images or is missing for paths.
    """
    making = checked(split, image_size, augmentation, preprocessing)
    indices = whole_class_indices(split.labels, batch_size, seed, start_step)
    return batches_of(making, indices, batch_size, seed, start_step)


def shuffled_batches(
    split,
    batch_size,
    seed=0,
    image_size=None,
    augmentation=None,
    start_step=0,
    *,
    preprocessing=None,
    part=(0, 1),
):
    """Endless batches of images in a random order, each a function of (seed, step) alone.

    Each image comes at most once an epoch, whatever its class: for losses over proxies of classes.
    A batch of few of many classes may have no positive pair. `shuffled_indices` in
    `pipelines/shuffled.py` has the details.

    Args:
        split: `Split` to draw from.
        batch_size: m, images of a batch; at most those of the split.
        seed: Of the order of the images and of their augmentation.
        image_size: As for `balanced_batches`.
        augmentation: `Augmentation`, or None for none.
        start_step: As for `balanced_batches`.
        preprocessing: As for `balanced_batches`.
        part: As for `balanced_batches`.

    Returns:
        `tf.data.Dataset` of `(images, labels)`: (m, height, width, channels) float32 in [0, 255]
        and (m,) int64, or (m, num_labels) where images have several labels.

    Raises:
        TypeError: If a number is not an integer, `split` not a `Split` or `augmentation` not an
            `Augmentation`.
        ValueError: If the split has fewer than m images, a number is out of range, or `image_size`
            does not suit these images or is missing for paths.
    """
    making = checked(split, image_size, augmentation, preprocessing)
    indices = shuffled_indices(len(split.labels), batch_size, seed, start_step)
    return batches_of(making, indices, batch_size, seed, start_step, part)


def pair_batches(
    split,
    batch_size,
    seed=0,
    image_size=None,
    augmentation=None,
    start_step=0,
    *,
    hard_neighbours=None,
    reshuffle=False,
    preprocessing=None,
    part=(0, 1),
):
    """Endless batches of pairs, about half of them positive, as in the lifted-structure paper.

    An epoch has every positive pair, every image paired with itself (random augmentation makes the
    two differ), and as many random negative pairs. Each batch is a function of (seed, step) alone.
    It warns if no class has two images. `pair_indices` in `pipelines/pairs.py` has the details.

    With `hard_neighbours` a batch is m / 4 random positive pairs and, for each of their images, the
    nearest image of another class: a function of (seed, step) and the embeddings of the last
    refresh. Batches are prefetched up to the next refresh, never beyond it.

    Args:
        split: `Split` to draw from.
        batch_size: m, images of a batch: even, or a multiple of 4 with hard neighbours.
        seed: Of the choice of images and of their augmentation.
        image_size: As for `balanced_batches`.
        augmentation: `Augmentation`, or None for none.
        start_step: As for `balanced_batches`.
        hard_neighbours: `HardNeighbours` of the labels of the split and this batch size, or None.
        reshuffle: Whether each epoch shuffles its pairs anew; if not, every epoch repeats the
            batches of the first. With hard neighbours it always does.
        preprocessing: As for `balanced_batches`.
        part: As for `balanced_batches`.

    Returns:
        `tf.data.Dataset` of `(images, labels)`: (m, height, width, channels) float32 in [0, 255]
        and (m,) int64; the left images of the pairs, then the right ones, or with hard neighbours
        the left, the right, and the neighbours of both.

    Raises:
        TypeError: If a number is not an integer, `reshuffle` not a bool, `split` not a `Split`,
            `augmentation` not an `Augmentation` or `hard_neighbours` not `HardNeighbours`.
        ValueError: If there is a single class or too few pairs, a number is out of range, the hard
            neighbours are of other labels or batch size, `image_size` does not suit these images,
            or it is missing for paths.

    Example:
        >>> import numpy as np
        >>> from pipelines import HardNeighbours, Split
        >>> images = np.arange(8, dtype=np.uint8).reshape(8, 1, 1, 1)
        >>> split = Split(images, np.arange(8) // 2)
        >>> neighbours = HardNeighbours(split.labels, batch_size=4, refresh_every=10)
        >>> batches = iter(pair_batches(split, 4, hard_neighbours=neighbours))
        >>> neighbours.refresh(0, np.array([[0.0], [1], [5], [6], [2], [7], [3], [4]]))
        >>> print(np.ravel(next(batches)[0]))
        [2. 3. 7. 5.]
    """
    making = checked(split, image_size, augmentation, preprocessing)
    if hard_neighbours is None:
        indices = pair_indices(
            split.labels, batch_size, reshuffle=reshuffle, seed=seed, start_step=start_step
        )
        return batches_of(making, indices, batch_size, seed, start_step, part)
    check_position(seed, start_step)
    check_bool(reshuffle=reshuffle)
    check_is(HardNeighbours, "hard_neighbours", hard_neighbours)
    hard_neighbours.check_suits(split.labels, batch_size)
    refresh_every = hard_neighbours.refresh_every
    indices_of = hard_pairs(hard_neighbours, seed)
    load = loader(making, batch_size, batch_size, seed, part)

    @tf.autograph.experimental.do_not_convert
    def until_refresh(step):
        nearest = tf.numpy_function(hard_neighbours.nearest, [step], tf.int32)
        steps = tf.data.Dataset.range(step, step + refresh_every)
        indices = steps.map(lambda step: indices_of(step, nearest), tf.data.AUTOTUNE)
        return load(tf.data.Dataset.zip(steps, indices))

    refreshes = all_steps(start_step, refresh_every)
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False  # not beyond a refresh
    return on_all_cores(refreshes.flat_map(until_refresh)).with_options(options)
