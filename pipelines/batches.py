"""Batches of images for training and for evaluation."""

import numpy as np
import tensorflow as tf

from pipelines.augmentation import Augmentation
from pipelines.hard_neighbours import HardNeighbours, hard_pairs
from pipelines.images import crop, prepare, random_colour, random_flip, random_part, random_warp
from pipelines.pairs import pair_indices
from pipelines.preprocessing import Preprocessing
from pipelines.records import read_batches
from pipelines.sampling import all_steps, balanced_indices, group_indices, step_seed
from pipelines.shuffled import shuffled_indices
from pipelines.split import check_split
from pipelines.whole_classes import whole_class_indices
from tfdml.checks import check, check_bool, check_image_size, check_integer, check_type
from tfdml.decoding import decode, resize
from tfdml.orientation import upright

_CROP_DRAWS, _WARP_DRAWS, _COLOUR_DRAWS = 4, 5, 3
_DRAWS = {"augmentation": _CROP_DRAWS + _WARP_DRAWS, "colour": _COLOUR_DRAWS}  # of each seed
_RECORDS = 64  # read at once in evaluation


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
        start_step: Step of the first batch: the optimizer's, to resume.
        sampler: `"balanced"` for K images of each class, or `"mixed"` for K to 2 K of fewer.
        preprocessing: `Preprocessing`, or None to only resize. An augmentation with `crop` below 1
            replaces its random crop.
        part: (i, n) for the rows of the i-th of n equal parts of every batch, for a worker of
            several; other images are not read. n must divide the batch.

    Returns:
        `tf.data.Dataset` of `(images, labels)`: (P × K, height, width, channels) float32 in
        [0, 255] and (P × K,) int64, the rows of a class in a row.

    Raises:
        TypeError: If P, K, the seed or the step is not an integer, `split` not a `Split` or
            `augmentation` not an `Augmentation`.
        ValueError: If one of them is out of range, or `image_size` does not suit these images or
            is missing for paths.
    """
    making = _checked(split, image_size, augmentation, preprocessing)
    indices = balanced_indices(
        split.labels, classes_per_batch, images_per_class, seed, start_step, sampler
    )
    batch = classes_per_batch * images_per_class
    return _batches(making, indices, batch, seed, start_step, part)


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
            a single image of a class is left.
        batch_size: Most images of a batch, above P; surplus images are dropped at random.
        seed: Of the choice of images and of their augmentation.
        image_size: As for `balanced_batches`.
        augmentation: `Augmentation`, or None for none.
        start_step: Step of the first batch: the optimizer's, to resume.
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
    making = _checked(split, image_size, augmentation, preprocessing)
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
    return _batches(making, indices, batch_size, seed, start_step)


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
        start_step: Step of the first batch: the optimizer's, to resume.
        preprocessing: As for `balanced_batches`.

    Returns:
        `tf.data.Dataset` of `(images, labels)`: (m or m - 1, height, width, channels) float32 in
        [0, 255] and their int64 labels, the rows of a class in a row, two or more.

    Raises:
        TypeError: If a number is not an integer, `split` not a `Split` or `augmentation` not an
            `Augmentation`.
        ValueError: If fewer than 2 classes have 2 images, a number is out of range, or `image_size`
            does not suit these images or is missing for paths.
    """
    making = _checked(split, image_size, augmentation, preprocessing)
    indices = whole_class_indices(split.labels, batch_size, seed, start_step)
    return _batches(making, indices, batch_size, seed, start_step)


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
        start_step: Step of the first batch: the optimizer's, to resume.
        preprocessing: As for `balanced_batches`.
        part: As for `balanced_batches`.

    Returns:
        `tf.data.Dataset` of `(images, labels)`: (m, height, width, channels) float32 in [0, 255]
        and (m,) int64.

    Raises:
        TypeError: If a number is not an integer, `split` not a `Split` or `augmentation` not an
            `Augmentation`.
        ValueError: If the split has fewer than m images, a number is out of range, or `image_size`
            does not suit these images or is missing for paths.
    """
    making = _checked(split, image_size, augmentation, preprocessing)
    indices = shuffled_indices(len(split.labels), batch_size, seed, start_step)
    return _batches(making, indices, batch_size, seed, start_step, part)


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
    `pair_indices` in `pipelines/pairs.py` has the details.

    With `hard_neighbours` a batch is m / 4 random positive pairs and, for each of their images, the
    nearest image of another class: a function of (seed, step) and the embeddings of the last
    refresh. Batches are prefetched up to the next refresh, never beyond it.

    Args:
        split: `Split` to draw from.
        batch_size: m, images of a batch: even, or a multiple of 4 with hard neighbours.
        seed: Of the choice of images and of their augmentation.
        image_size: As for `balanced_batches`.
        augmentation: `Augmentation`, or None for none.
        start_step: Step of the first batch: the optimizer's, to resume. With hard neighbours a
            multiple of their `refresh_every`.
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
    making = _checked(split, image_size, augmentation, preprocessing)
    if hard_neighbours is None:
        indices = pair_indices(
            split.labels, batch_size, reshuffle=reshuffle, seed=seed, start_step=start_step
        )
        return _batches(making, indices, batch_size, seed, start_step, part)
    check_integer(0, seed=seed, start_step=start_step)
    check_bool(reshuffle=reshuffle)
    _check_is(HardNeighbours, "hard_neighbours", hard_neighbours)
    hard_neighbours.check_suits(split.labels, batch_size, start_step)
    refresh_every = hard_neighbours.refresh_every
    indices_of = hard_pairs(hard_neighbours, seed)
    load = _loader(making, batch_size, batch_size, seed, part)

    def until_refresh(step):
        nearest = tf.numpy_function(hard_neighbours.nearest, [step], tf.int32)
        steps = tf.data.Dataset.range(step, step + refresh_every)
        indices = steps.map(lambda step: indices_of(step, nearest), tf.data.AUTOTUNE)
        return load(tf.data.Dataset.zip(steps, indices))

    refreshes = all_steps(start_step, refresh_every)
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False  # not beyond a refresh
    return refreshes.flat_map(until_refresh).with_options(options)


def _batches(making, indices, batch, seed, start_step, part=(0, 1)):
    """Batches of images and labels from indices; of at most `batch` if their shape is unknown."""
    load = _loader(making, batch, indices.element_spec.shape[0], seed, part)
    return load(tf.data.Dataset.zip(all_steps(start_step), indices))


def _loader(making, batch, size, seed, part):
    """Returns a function from a dataset of (step, indices) to one of (images, labels).

    Args:
        making: As returned by `_checked`.
        batch: Most indices of a batch.
        size: Indices of every batch; None if their number varies.
        seed: Of the augmentation.
        part: (i, n), of n equal parts of the batch the one to load.
    """
    rows = _rows_of(part, batch)
    size = size and len(rows)
    split, image_size, augmentation, preprocessing = making
    several_sizes = split.holds_paths or split.boxes is not None or augmentation.crops
    one_by_one = several_sizes or preprocessing.takes_crops
    of_batch = augmentation.changed(flip=False) if one_by_one else augmentation
    tables = [tf.constant(each) for each in (split.images, split.labels, boxes_of(split))]

    def gather(step, indices):
        # Short batches are padded to `batch` rows; `finish` drops the padding.
        kept = tf.range(batch) < tf.size(indices)
        indices = tf.ensure_shape(tf.pad(indices, [[0, batch - tf.size(indices)]]), [batch])
        draws = [
            tf.random.stateless_uniform([batch, draws], step_seed(seed, purpose, step))
            for purpose, draws in _DRAWS.items()
        ]
        own = indices[rows.start : rows.stop]
        here = (tf.concat(draws, axis=1), kept)
        here = (each[rows.start : rows.stop] for each in here)
        return *(tf.gather(table, own) for table in tables), *here

    def load(image, label, box, draws, kept):
        image = part_of(split, image, box, image_size[2])
        image = random_part(image, image_size, augmentation, preprocessing, draws[:_CROP_DRAWS])
        image = random_flip(image, augmentation, draws[_CROP_DRAWS])
        return tf.ensure_shape(image, image_size), label, box, draws, kept

    def finish(images, labels, _, draws, kept):
        if size is None:
            images, labels, draws = (
                tf.boolean_mask(each, kept) for each in (images, labels, draws)
            )
        _, warps, colours = tf.split(draws, [_CROP_DRAWS, _WARP_DRAWS, _COLOUR_DRAWS], axis=1)
        images = random_warp(resize(images, image_size), of_batch, warps)
        images = random_colour(images, of_batch, colours)
        return tf.ensure_shape(images, [size, *image_size]), labels

    def batches_of(numbered):
        batches = numbered.map(gather)
        if split.holds_records:
            batches = batches.map(_with_contents, num_parallel_calls=tf.data.AUTOTUNE)
        if one_by_one:
            images = batches.unbatch().map(load, num_parallel_calls=tf.data.AUTOTUNE)
            batches = images.batch(len(rows), drop_remainder=True)
        return batches.map(finish, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)

    return batches_of


def _rows_of(part, batch):
    """The rows of a batch that are the i-th of n equal parts, as a range."""
    index, count = part
    check_integer(0, index=index)
    check_integer(index + 1, count=count)
    expectation = "`part` must be (i, n) of an n that divides the batch"
    check(batch % count == 0, expectation, part=part, batch=batch)
    return range(index * batch // count, (index + 1) * batch // count)


def evaluation_batches(
    split, image_size=None, batch_size=256, *, preprocessing=None, with_labels=False
):
    """All images of a split in order, cut to their boxes and resized, without augmentation.

    Args:
        split: `Split`.
        image_size: (height, width, channels), for paths 1 or 3 channels; that of the images if
            None; required for paths.
        batch_size: Images in a batch; the last may have fewer.
        preprocessing: `Preprocessing`, with a centre crop; None to only resize.
        with_labels: Whether to yield labels too, as for `validation_data` of `fit`.

    Returns:
        `tf.data.Dataset` of (batch, height, width, channels) float32 in [0, 255]; with labels, of
        `(images, labels)`, the labels (batch,) int64.

    Raises:
        TypeError: If `split` is not a `Split`, `batch_size` not an integer or `preprocessing` not a
            `Preprocessing`.
        ValueError: If `image_size` does not suit these images or is missing for paths,
            `batch_size` is below 1 or the preprocessing cannot make images of this size.
    """
    check_integer(1, batch_size=batch_size)
    _, image_size, _, preprocessing = _checked(split, image_size, None, preprocessing)
    check_bool(with_labels=with_labels)

    def load(image, box, label):
        image = prepare(part_of(split, image, box, image_size[2]), image_size, preprocessing)
        return (image, label) if with_labels else image

    images = tf.data.Dataset.from_tensor_slices((split.images, boxes_of(split), split.labels))
    if split.holds_records:
        images = images.batch(_RECORDS).map(_with_contents, tf.data.AUTOTUNE).unbatch()
    images = images.map(load, num_parallel_calls=tf.data.AUTOTUNE)
    return images.batch(batch_size).prefetch(tf.data.AUTOTUNE)


def boxes_of(split):
    """The boxes of a split; unused zeros if it has none."""
    return np.zeros((len(split.images), 4), np.int64) if split.boxes is None else split.boxes


def _with_contents(paths, *rest):
    return read_batches(paths), *rest


def part_of(split, image, box, channels):
    """One image of a split, cut to its box if it has boxes.

    Args:
        split: `Split`.
        image: A row of its images; for a cache, the contents of the record.
        box: (4,) integers, in the pixels of the file whatever its EXIF orientation.
        channels: Of the image.

    Returns:
        (height, width, channels) uint8.
    """
    if split.holds_paths:
        contents = image if split.holds_records else tf.io.read_file(image)
        if split.boxes is None:
            return decode(contents, channels)
        return upright(crop(decode(contents, channels, as_stored=True), box), contents)
    return image if split.boxes is None else crop(image, box)


def _checked(split, image_size, augmentation, preprocessing):
    """Checks the arguments and returns them, with defaults in place of None."""
    augmentation = Augmentation() if augmentation is None else augmentation
    preprocessing = Preprocessing() if preprocessing is None else preprocessing
    _check_is(Augmentation, "augmentation", augmentation)
    _check_is(Preprocessing, "preprocessing", preprocessing)
    image_size = _checked_size(split, image_size)
    preprocessing.check_sizes(image_size, augmentation)
    if split.warped is not None:
        preprocessing = preprocessing.of_warped(split.warped)
    return split, image_size, augmentation, preprocessing


def _check_is(kind, name, value):
    article = "an" if kind is Augmentation else "a"
    expected = f"`{name}` must be {article} `{kind.__name__}` or None"
    check_type(isinstance(value, kind), expected, **{name: value})


def _checked_size(split, image_size):
    check_split(split)
    if image_size is None and not split.holds_paths:
        return split.images.shape[1:]
    check_image_size(" for paths" if split.holds_paths else "", image_size=image_size)
    size = tuple(image_size)  # pyright: ignore[reportArgumentType], it is not None
    if split.holds_paths:
        expected = "`image_size` must have 1 or 3 channels for paths"
        check(size[2] in (1, 3), expected, image_size=size)
    else:
        channels = split.images.shape[3]
        expected = "`image_size` must have the channels of the images"
        check(size[2] == channels, expected, image_size=size, channels=channels)
    return size
