"""Batches of images, or of other inputs: endless ones to train on, and all in order to score."""

import tensorflow as tf

from pipelines.loading import Reader, rows_of, suited, with_contents
from pipelines.pairs import Pairs
from pipelines.parallel import on_all_cores
from pipelines.sampling import Balanced, Groups, Mixed, Shuffled, WholeClasses
from pipelines.split import check_split
from tfdml.checks import check, check_bool, check_integer, check_one_of

SAMPLERS = {"balanced": Balanced, "mixed": Mixed}
_RECORDS = 64  # read at once in evaluation


@tf.autograph.experimental.do_not_convert
def batches(split, sampler, reader=None, seed=0, start_step=0, part=(0, 1)):
    """Endless batches of the rows that a sampler chooses, each a function of (seed, step) alone.

    Args:
        split: `Split` to draw from.
        sampler: `Balanced`, `Mixed`, `Groups`, `WholeClasses`, `Shuffled`, `Pairs` or one of your
            own: an object with `batch_size`, the most rows of a batch, and a method
            `indices(split, seed, step)` in TensorFlow operations that returns (m,) rows.
        reader: `Reader` of images; or a function that makes a row a tensor: it takes the row,
            {"path": of an image file}, {"pixels": (height, width, channels)}, {"contents": of a
            cached file} or a row of `inputs`, and an integer seed (2,) of that row at that step.
            None for images of the size that they have, and `inputs` as they are.
        seed: Of the choice of rows and of their augmentation; >= 0 and below 2**63.
        start_step: Step of the first batch. To resume, the optimizer's number of steps, plus the
            batches whose update it skipped; or a function that returns it, called when iteration
            begins: by `lambda: model.optimizer.iterations` a `fit` that is resumed by
            `keras.callbacks.BackupAndRestore` goes on with the batches that would have come.
        part: (i, n) for the rows of the i-th of n equal parts of every batch, for a worker of
            several; other rows are not read. n must divide the batch.

    Returns:
        `tf.data.Dataset` of `(images, labels)`: (m, height, width, channels) float32 in [0, 255]
        and (m,) int64, or (m, num_labels) where images have several labels. Of a split of `inputs`
        `(inputs, labels)`. m is None where batches differ in size.

    Raises:
        TypeError: If the seed or the step is not an integer, or an argument not of its class.
        ValueError: If one of them is out of range, or sampler or reader do not suit the split.
    """
    reader = suited(reader, split)
    check_integer(0, seed=seed)
    if not callable(start_step):
        check_integer(0, start_step=start_step)
    batch, own = sampler.batch_size, _part_of(part, sampler.batch_size)
    with tf.device("CPU:0"):  # else a GPU would hold all rows
        tables = tf.nest.map_structure(tf.constant, (rows_of(split), split.labels))

    def gather(step):
        indices = tf.cast(sampler.indices(split, seed, step), tf.int64)
        kept = []
        if indices.shape[0] is None:  # padded to `batch` rows; `finish` drops the padding
            kept = [tf.range(batch) < tf.size(indices)]
            indices = tf.ensure_shape(tf.pad(indices, [[0, batch - tf.size(indices)]]), [batch])
        indices, draws, kept = tf.nest.map_structure(
            lambda each: each[own.start : own.stop],
            (indices, reader.draws(seed, step, batch), kept),
        )
        rows, labels = tf.nest.map_structure(lambda table: tf.gather(table, indices), tables)
        return rows, labels, draws, *kept

    def finish(rows, labels, draws, *kept):
        if kept:
            rows, labels, draws = tf.nest.map_structure(
                lambda each: tf.boolean_mask(each, kept[0]), (rows, labels, draws)
            )
        return reader.finish(rows, draws), labels

    def loaded(steps):
        rows = steps.map(gather, num_parallel_calls=tf.data.AUTOTUNE)
        if split.holds_records:
            rows = rows.map(lambda rows, *rest: (with_contents(rows), *rest), tf.data.AUTOTUNE)
        if reader.reads_each(split):
            each = rows.unbatch().map(
                lambda row, label, draws, *kept: (reader.image(row, draws), label, draws, *kept),
                num_parallel_calls=tf.data.AUTOTUNE,
            )
            rows = each.batch(len(own), drop_remainder=True)
        rows = rows.map(finish, num_parallel_calls=tf.data.AUTOTUNE)
        return on_all_cores(rows.prefetch(tf.data.AUTOTUNE))

    every = getattr(sampler, "refresh_every", None)
    if every is None:
        return loaded(_steps(start_step))
    refreshes = _steps(start_step, every)
    endless = refreshes.flat_map(lambda step: loaded(tf.data.Dataset.range(step, step + every)))
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False  # not beyond a refresh
    return on_all_cores(endless).with_options(options)


def _part_of(part, batch):
    """The rows of a batch that are the i-th of n equal parts, as a range."""
    index, count = part
    check_integer(index=index, count=count)
    expectation = "`part` must be (i, n), 0 <= i < n, of an n that divides the batch"
    check(0 <= index < count and batch % count == 0, expectation, part=part, batch=batch)
    return range(index * batch // count, (index + 1) * batch // count)


def _steps(start_step, every=1):
    """The endless `tf.data.Dataset` of steps, () int64."""
    counter, every = tf.data.Dataset.counter, tf.constant(every, tf.int64)
    if not callable(start_step):
        return counter(tf.constant(start_step, tf.int64), every)

    def called():
        step = tf.convert_to_tensor(start_step()).numpy()  # such as a variable of replicas
        check_integer(0, start_step=step)
        yield step

    spec = tf.TensorSpec([], tf.int64)
    first = tf.data.Dataset.from_generator(called, output_signature=spec)
    return first.flat_map(lambda step: counter(step, every))


def _reader(split, image_size, augmentation, preprocessing):
    """The reader with these options; None for a split of `inputs`, which has none."""
    check_split(split)
    if split.inputs is None:
        return Reader(image_size, preprocessing, augmentation)
    given = {"image_size": image_size, "augmentation": augmentation, "preprocessing": preprocessing}
    none = all(option is None for option in given.values())
    check(none, "options of images must be None for a split of `inputs`", **given)
    return None


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
    """`batches` by the sampler `Balanced`, P classes × K images, or `Mixed`.

    Args:
        split: `Split` to draw from.
        classes_per_batch: P, distinct classes.
        images_per_class: K, distinct images of each (a smaller class repeats its images).
        seed: As for `batches`, as are `start_step` and `part`.
        image_size: As for `Reader`, as are `augmentation` and `preprocessing`.
        augmentation: `Augmentation`, or None for none.
        start_step: Step of the first batch, or a function that returns it.
        sampler: `"balanced"` for K images of each class, or `"mixed"` for K to 2 K of fewer.
        preprocessing: `Preprocessing`, or None to only resize.
        part: (i, n) for the i-th of n equal parts of every batch.

    Returns:
        `tf.data.Dataset` of `(images, labels)` as of `batches`, m = P × K.
    """
    check_one_of(SAMPLERS, sampler=sampler)
    chosen = SAMPLERS[sampler](classes_per_batch, images_per_class)
    reader = _reader(split, image_size, augmentation, preprocessing)
    return batches(split, chosen, reader, seed, start_step, part)


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
    """`batches` by the sampler `Groups`: related classes, of few super-classes.

    The options are those of `Groups`; the others as for `balanced_batches`. Of m images, 2 <= m <=
    `batch_size`.
    """
    chosen = Groups(classes_per_batch, batch_size, super_classes, images_per_class, evenly)
    reader = _reader(split, image_size, augmentation, preprocessing)
    return batches(split, chosen, reader, seed, start_step)


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
    """`batches` by the sampler `WholeClasses`: all images of random classes, as many as fit.

    `batch_size` is that of `WholeClasses`; the others as for `balanced_batches`.
    """
    reader = _reader(split, image_size, augmentation, preprocessing)
    return batches(split, WholeClasses(batch_size), reader, seed, start_step)


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
    """`batches` by the sampler `Shuffled`: images in a random order, whatever their class.

    `batch_size` is that of `Shuffled`; the others as for `balanced_batches`.
    """
    reader = _reader(split, image_size, augmentation, preprocessing)
    return batches(split, Shuffled(batch_size), reader, seed, start_step, part)


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
    """`batches` by the sampler `Pairs`: pairs, about half of them positive.

    The options are those of `Pairs`; the others as for `balanced_batches`. With `hard_neighbours`
    batches are prefetched up to the next refresh, never beyond it.

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
    chosen = Pairs(batch_size, hard_neighbours, reshuffle)
    reader = _reader(split, image_size, augmentation, preprocessing)
    return batches(split, chosen, reader, seed, start_step, part)


@tf.autograph.experimental.do_not_convert
def evaluation_batches(
    split, image_size=None, batch_size=256, *, preprocessing=None, with_labels=False, reader=None
):
    """All images of a split in order, cut to their boxes and resized, without augmentation.

    Of a split of `inputs`, its rows as they are.

    Args:
        split: `Split`.
        image_size: (height, width, channels), for paths 1 or 3 channels; that of the images if
            None; required for paths.
        batch_size: Images in a batch; the last may have fewer.
        preprocessing: `Preprocessing`, with a centre crop; None to only resize.
        with_labels: Whether to yield labels too, as for `validation_data` of `fit`.
        reader: In place of `image_size` and `preprocessing`, the reader of `batches`; a function
            gets the seed 0, 0.

    Returns:
        `tf.data.Dataset` of (batch, height, width, channels) float32 in [0, 255]; with labels, of
        `(images, labels)`, the labels (batch,) or (batch, num_labels) int64.

    Raises:
        TypeError: If `split` is not a `Split`, `batch_size` not an integer or `preprocessing` not a
            `Preprocessing`.
        ValueError: If `image_size` does not suit these images or is missing for paths,
            `batch_size` is below 1 or the preprocessing cannot make images of this size.
    """
    check_integer(1, batch_size=batch_size)
    check_bool(with_labels=with_labels)
    reader = suited(reader or _reader(split, image_size, None, preprocessing), split)
    with tf.device("CPU:0"):  # else a GPU would hold all rows
        rows = tf.data.Dataset.from_tensor_slices((rows_of(split), split.labels))
    if split.holds_records:
        rows = rows.batch(_RECORDS)
        rows = rows.map(lambda rows, labels: (with_contents(rows), labels), tf.data.AUTOTUNE)
        rows = rows.unbatch().apply(tf.data.experimental.assert_cardinality(len(split.labels)))

    def image(row, label):
        row = reader.image(row)
        return (row, label) if with_labels else row

    rows = rows.map(image, num_parallel_calls=tf.data.AUTOTUNE)
    return on_all_cores(rows.batch(batch_size).prefetch(tf.data.AUTOTUNE))
