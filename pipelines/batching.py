"""Batches of images, or of other inputs: endless ones to train on, and all in order to score."""

import tensorflow as tf

from pipelines.decoded import DecodedImages
from pipelines.loading import Reader, on_all_cores, rows_of, suited, with_contents
from pipelines.pair_sampler import Pairs
from pipelines.samplers import Balanced, Groups, Mixed, Shuffled, WholeClasses
from tfdml.checks import check, check_bool, check_integer, check_one_of

_RECORDS = 64  # read at once in evaluation


@tf.autograph.experimental.do_not_convert
def batches(split, sampler, reader=None, seed=0, start_step=0, part=(0, 1), kept_bytes=0):
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
            begins, such as `lambda: model.optimizer.iterations` for a `fit` that
            `keras.callbacks.BackupAndRestore` resumes.
        part: (i, n) for the rows of the i-th of n equal parts of every batch, for a worker of
            several; other rows are not read. n must divide the batch.
        kept_bytes: Memory for decoded images of separate files, so that each that fits is decoded
            once. The batches are the same.

    Returns:
        `tf.data.Dataset` of `(images, labels)`: (m, height, width, channels) float32 in [0, 255]
        and (m,) int64, or (m, num_labels) where images have several labels. Of a split of `inputs`
        `(inputs, labels)`. m is None where batches differ in size.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If one is out of range, or sampler or reader do not suit the split.
    """
    reader = suited(reader, split)
    check_integer(0, seed=seed)
    if not callable(start_step):
        check_integer(0, start_step=start_step)
    batch, (index, parts) = sampler.batch_size, part
    check_integer(index=index, parts=parts)
    expectation = "`part` must be (i, n), 0 <= i < n, of an n that divides the batch"
    check(0 <= index < parts and batch % parts == 0, expectation, part=part, batch=batch)
    own = slice(index * batch // parts, (index + 1) * batch // parts)
    with tf.device("CPU:0"):  # else a GPU would hold all rows
        tables = tf.nest.map_structure(tf.constant, (rows_of(split), split.labels))
    image = reader.image
    if kept_bytes and isinstance(reader, Reader) and split.holds_paths and not split.holds_records:
        image = DecodedImages(reader, kept_bytes).image
        tables[0]["number"] = tf.range(len(split.labels))

    def gather(step):
        indices = tf.cast(sampler.indices(split, seed, step), tf.int64)
        kept = []
        if indices.shape[0] is None:  # padded to `batch` rows; `finish` drops the padding
            kept = [tf.range(batch) < tf.size(indices)]
            indices = tf.ensure_shape(tf.pad(indices, [[0, batch - tf.size(indices)]]), [batch])
        indices, draws, kept = tf.nest.map_structure(
            lambda each: each[own], (indices, reader.draws(seed, step, batch), kept)
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
                lambda row, label, draws, *kept: (image(row, draws), label, draws, *kept),
                num_parallel_calls=tf.data.AUTOTUNE,
            )
            rows = each.batch(batch // parts, drop_remainder=True)
        rows = rows.map(finish, num_parallel_calls=tf.data.AUTOTUNE)
        return on_all_cores(rows.prefetch(tf.data.AUTOTUNE))

    every = getattr(sampler, "refresh_every", None)
    if every is None:
        return loaded(_steps(start_step))
    refreshes = _steps(start_step, every)
    endless = refreshes.flat_map(lambda step: loaded(tf.data.Dataset.range(step, step + every)))
    return on_all_cores(endless)


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


def _reader(*options):
    """The `Reader` of some options, or None without any."""
    return None if all(option is None for option in options) else Reader(*options)


def balanced_batches(
    split,
    classes_per_batch,
    images_per_class,
    seed=0,
    image_size=None,
    augmentation=None,
    start_step=0,
    sampler="balanced",
    **options,
):
    """`batches` by the sampler `Balanced`, P classes × K images, or `Mixed`.

    Args:
        split: `Split` to draw from.
        classes_per_batch: P, distinct classes.
        images_per_class: K, distinct images of each (a smaller class repeats its images).
        seed: As for `batches`, as is `start_step`.
        image_size: As for `Reader`, as is `augmentation`.
        augmentation: `Augmentation`, or None for none.
        start_step: Step of the first batch, or a function that returns it.
        sampler: `"balanced"` for K images of each class, or `"mixed"` for K to 2 K of fewer.
        **options: `preprocessing` as for `Reader`, `part` as for `batches`.

    Returns:
        `tf.data.Dataset` of `(images, labels)` as of `batches`, m = P × K.
    """
    kinds = {"balanced": Balanced, "mixed": Mixed}
    check_one_of(kinds, sampler=sampler)
    sizes, images = (classes_per_batch, images_per_class), (seed, image_size, augmentation)
    return _image_batches(kinds[sampler], sizes, split, *images, start_step, **options)


def group_batches(split, classes_per_batch, batch_size, *images, **options):
    """`batches` by `Groups`, whose options it takes; the others as for `balanced_batches`."""
    return _image_batches(Groups, (classes_per_batch, batch_size), split, *images, **options)


def whole_class_batches(split, batch_size, *images, **options):
    """`batches` by `WholeClasses(batch_size)`; the others as for `balanced_batches`."""
    return _image_batches(WholeClasses, (batch_size,), split, *images, **options)


def shuffled_batches(split, batch_size, *images, **options):
    """`batches` by `Shuffled(batch_size)`; the others as for `balanced_batches`."""
    return _image_batches(Shuffled, (batch_size,), split, *images, **options)


def pair_batches(split, batch_size, *images, **options):
    """`batches` by `Pairs`, whose options it takes; the others as for `balanced_batches`.

    With `hard_neighbours` batches are prefetched up to the next refresh, never beyond it.

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
    return _image_batches(Pairs, (batch_size,), split, *images, **options)


def _image_batches(
    kind,
    sizes,
    split,
    seed=0,
    image_size=None,
    augmentation=None,
    start_step=0,
    *,
    preprocessing=None,
    part=(0, 1),
    **options,
):
    reader = _reader(image_size, preprocessing, augmentation)
    return batches(split, kind(*sizes, **options), reader, seed, start_step, part)


@tf.autograph.experimental.do_not_convert
def evaluation_batches(
    split, image_size=None, batch_size=256, *, preprocessing=None, with_labels=False, reader=None
):
    """All images of a split in order, as a `Reader` makes them to score; `inputs` as they are.

    Args:
        split: `Split`.
        image_size: As for `Reader`, as is `preprocessing`.
        batch_size: Images in a batch; the last may have fewer.
        preprocessing: `Preprocessing`, with a centre crop; None to only resize.
        with_labels: Whether to yield labels too, as for `validation_data` of `fit`.
        reader: In place of `image_size` and `preprocessing`, the reader of `batches`; a function
            gets the seed 0, 0.

    Returns:
        `tf.data.Dataset` of images or, with labels, of `(images, labels)`, as of `batches`.

    Raises:
        TypeError: If an argument is not of its class.
        ValueError: If `batch_size` is below 1, or images of this size cannot be made of the split.
    """
    check_integer(1, batch_size=batch_size)
    check_bool(with_labels=with_labels)
    reader = suited(reader or _reader(image_size, preprocessing), split)
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
