"""Images of a split by the numbers of their rows: read, cut, augmented and resized."""

import numpy as np
import tensorflow as tf

from pipelines.augmentation import Augmentation
from pipelines.images import (
    crop,
    random_colour,
    random_flip,
    random_part,
    random_symmetry,
    random_warp,
)
from pipelines.parallel import on_all_cores
from pipelines.preprocessing import Preprocessing
from pipelines.records import read_batches
from pipelines.sampling import all_steps, step_seed
from pipelines.split import check_split
from tfdml.checks import check, check_image_size, check_integer, check_type
from tfdml.decoding import decode, resize
from tfdml.orientation import upright

_CROP_DRAWS, _WARP_DRAWS, _COLOUR_DRAWS = 4, 5, 3
_DRAWS = {"augmentation": _CROP_DRAWS + _WARP_DRAWS, "colour": _COLOUR_DRAWS}  # of each seed


def checked(split, image_size, augmentation, preprocessing):
    """Checks the arguments and returns them, with defaults in place of None."""
    check_split(split)
    if split.inputs is not None:
        given = {"image_size": image_size, "augmentation": augmentation}
        given = {**given, "preprocessing": preprocessing}
        none = all(option is None for option in given.values())
        check(none, "options of images must be None for a split of `inputs`", **given)
        return split, None, None, None
    augmentation = Augmentation() if augmentation is None else augmentation
    preprocessing = Preprocessing() if preprocessing is None else preprocessing
    check_is(Augmentation, "augmentation", augmentation)
    check_is(Preprocessing, "preprocessing", preprocessing)
    image_size = _checked_size(split, image_size)
    preprocessing.check_sizes(image_size, augmentation)
    if split.warped is not None:
        preprocessing = preprocessing.of_warped(split.warped)
    return split, image_size, augmentation, preprocessing


def check_is(kind, name, value):
    article = "an" if kind is Augmentation else "a"
    expected = f"`{name}` must be {article} `{kind.__name__}` or None"
    check_type(isinstance(value, kind), expected, **{name: value})


def _checked_size(split, image_size):
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


def batches_of(making, indices, batch, seed, start_step, part=(0, 1)):
    """Batches of images and labels from indices; of at most `batch` if their shape is unknown."""
    load = loader(making, batch, indices.element_spec.shape[0], seed, part)
    return load(tf.data.Dataset.zip(all_steps(start_step), indices))


def loader(making, batch, size, seed, part):
    """Returns a function from a dataset of (step, indices) to one of (images, labels).

    Of a split of `inputs`, to one of (inputs, labels).

    Args:
        making: As returned by `checked`.
        batch: Most indices of a batch.
        size: Indices of every batch; None if their number varies.
        seed: Of the augmentation.
        part: (i, n), of n equal parts of the batch the one to load.
    """
    rows = _rows_of(part, batch)
    size = size and len(rows)
    split, image_size, augmentation, preprocessing = making
    if split.inputs is not None:
        return _inputs_loader(split, rows)
    several_sizes = split.holds_paths or split.boxes is not None or augmentation.crops
    one_by_one = several_sizes or preprocessing.takes_crops
    of_batch = augmentation.changed(flip=False) if one_by_one else augmentation
    with tf.device("CPU:0"):  # else a GPU would hold all pixels
        tables = [tf.constant(each) for each in (split.images, split.labels, boxes_of(split))]

    def gather(step, indices):
        # Short batches are padded to `batch` rows; `finish` drops the padding.
        kept = tf.range(batch) < tf.size(indices)
        indices = tf.ensure_shape(tf.pad(indices, [[0, batch - tf.size(indices)]]), [batch])
        draws = [
            tf.random.stateless_uniform([batch, draws], step_seed(seed, purpose, step))
            for purpose, draws in _DRAWS.items()
        ]
        symmetry = tf.random.stateless_uniform([], step_seed(seed, "symmetry", step))
        draws.append(tf.fill([batch, 1], symmetry))
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
        shares = [_CROP_DRAWS, _WARP_DRAWS, _COLOUR_DRAWS, 1]
        _, warps, colours, symmetry = tf.split(draws, shares, axis=1)
        images = random_symmetry(resize(images, image_size), augmentation, symmetry[0, 0])
        images = random_warp(images, of_batch, warps)
        images = random_colour(images, of_batch, colours)
        return tf.ensure_shape(images, [size, *image_size]), labels

    @tf.autograph.experimental.do_not_convert
    def loaded(numbered):
        batches = numbered.map(gather)
        if split.holds_records:
            batches = batches.map(with_contents, num_parallel_calls=tf.data.AUTOTUNE)
        if one_by_one:
            images = batches.unbatch().map(load, num_parallel_calls=tf.data.AUTOTUNE)
            batches = images.batch(len(rows), drop_remainder=True)
        batches = batches.map(finish, num_parallel_calls=tf.data.AUTOTUNE)
        return on_all_cores(batches.prefetch(tf.data.AUTOTUNE))

    return loaded


def _inputs_loader(split, part):
    """As `loader`, of a split of `inputs`; `part` is the range of rows of a batch to load."""
    with tf.device("CPU:0"):  # else a GPU would hold all rows
        tables = tf.nest.map_structure(tf.constant, (split.inputs, split.labels))

    def gather(_, indices):
        own = indices[part.start : part.stop]
        return tf.nest.map_structure(lambda table: tf.gather(table, own), tables)

    @tf.autograph.experimental.do_not_convert
    def loaded(numbered):
        batches = numbered.map(gather, num_parallel_calls=tf.data.AUTOTUNE)
        return on_all_cores(batches.prefetch(tf.data.AUTOTUNE))

    return loaded


def _rows_of(part, batch):
    """The rows of a batch that are the i-th of n equal parts, as a range."""
    index, count = part
    check_integer(index=index, count=count)
    expectation = "`part` must be (i, n), 0 <= i < n, of an n that divides the batch"
    check(0 <= index < count and batch % count == 0, expectation, part=part, batch=batch)
    return range(index * batch // count, (index + 1) * batch // count)


def boxes_of(split):
    """The boxes of a split; unused zeros if it has none."""
    return np.zeros((len(split.images), 4), np.int64) if split.boxes is None else split.boxes


def with_contents(paths, *rest):
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
