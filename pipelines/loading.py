"""Readers: from a row of a split to an image, the same in training, scoring and serving."""

import contextlib
import dataclasses
import os
from typing import Any

import tensorflow as tf

from pipelines import transforms
from pipelines.boxes import cut_to_images
from pipelines.preprocessing import Augmentation, Preprocessing
from pipelines.records import read_all
from pipelines.samplers import step_seed
from pipelines.split import check_split
from pipelines.unreadable import unreadable
from tfdml.checks import check, check_image_size, check_type
from tfdml.images.decoding import decode, resize, upright
from tfdml.images.image_files import CONVERTED
from tfdml.images.image_headers import read_image

_MACHINE_ERRORS = ("Aborted", "Cancelled", "DeadlineExceeded", "Internal", "ResourceExhausted")
_MACHINE_ERRORS += ("Unavailable",)  # of TensorFlow, which no image causes


@dataclasses.dataclass(frozen=True)
class Reader:
    """Turns rows of images into float32 images of one size.

    In training `image` makes a row an image by its part of the draws of a batch, and `finish`
    changes the whole batch, which is faster for what needs no row by itself. In scoring `image`
    does all, without draws; a call does the same in serving.

    Args:
        image_size: (height, width, channels), for paths 1 or 3 channels; that of the images if
            None; required for paths.
        preprocessing: `Preprocessing`, or None to only resize.
        augmentation: `Augmentation` of training, or None for none. With `crop` below 1 it replaces
            the random crop of the preprocessing.

    Raises:
        TypeError: If one is not of its class.
        ValueError: If images of this size cannot be made.
    """

    image_size: Any = None
    preprocessing: Any = None
    augmentation: Any = None

    def __post_init__(self):
        for article, kind in (("an", Augmentation), ("a", Preprocessing)):
            name = kind.__name__.lower()
            value = kind() if getattr(self, name) is None else getattr(self, name)
            expected = f"`{name}` must be {article} `{kind.__name__}` or None"
            check_type(isinstance(value, kind), expected, **{name: value})
            vars(self)[name] = value
        if self.image_size is not None:
            check_image_size(image_size=self.image_size)
            vars(self)["image_size"] = tuple(self.image_size)
            self.preprocessing.check_sizes(self.image_size, self.augmentation)

    def suited_to(self, split):
        """This reader with the size and what is left of the preprocessing of a split of images."""
        needed = "a `Reader` or options of images make images: a split of `inputs` takes neither"
        check(split.inputs is None, needed, image_size=self.image_size)
        size, preprocessing = self.image_size, self.preprocessing
        if split.holds_paths:
            check_image_size(" for paths", image_size=size)
            expected = "`image_size` must have 1 or 3 channels for paths"
            check(size[2] in (1, 3), expected, image_size=size)
        else:
            size, channels = size or split.images.shape[1:], split.images.shape[3]
            expected = "`image_size` must have the channels of the images"
            check(size[2] == channels, expected, image_size=size, channels=channels)
        if split.warped is not None:
            preprocessing = preprocessing.after_warp(split.warped)
        return dataclasses.replace(self, image_size=size, preprocessing=preprocessing)

    def reads_each(self, split):
        """Whether training makes each row an image by itself, before `finish`."""
        several_sizes = split.holds_paths or split.boxes is not None
        return several_sizes or self.augmentation.crops or self.preprocessing.takes_crops

    def draws(self, seed, step, count):
        """The random numbers of a batch, {purpose: (count, numbers) in [0, 1)}."""
        place, colour = (
            tf.random.stateless_uniform([count, number], step_seed(seed, purpose, step))
            for purpose, number in (("augmentation", 9), ("colour", 3))
        )
        symmetry = tf.random.stateless_uniform([], step_seed(seed, "symmetry", step))
        place, warp = tf.split(place, [4, 5], axis=1)
        symmetry = tf.fill([count, 1], symmetry)
        return {"place": place, "warp": warp, "colour": colour, "symmetry": symmetry}

    def image(self, row, draws=None):
        """The image of a row: as in scoring, or by its draws as far as `finish` needs it."""
        return self.part(self.before_crop(row, trained=draws is not None), draws)

    def before_crop(self, row, trained):
        """The image of a row as far as it needs no draws, uint8."""
        image, preprocessing = read(row, self.image_size[2]), self.preprocessing
        crops = trained and self.augmentation.crops  # in place of the crop of the warp
        if preprocessing.trim_white or (preprocessing.takes_crops and not crops):
            size = preprocessing.size_of_warp(self.image_size)
            return transforms.warp(image, size, preprocessing)
        return image

    def part(self, image, draws):
        """The part of an image of `before_crop` that `image` returns."""
        size, augmentation = self.image_size, self.augmentation
        place = draws and draws["place"]
        image = transforms.part(image, size, self.preprocessing, augmentation, place)
        if draws is None:
            return tf.cast(tf.ensure_shape(image, size), tf.float32)
        return tf.ensure_shape(transforms.random_flip(image, augmentation, draws["warp"][0]), size)

    def finish(self, images, draws):
        """A batch of training, of what `image` made or of rows of pixels."""
        augmentation = self.augmentation
        if isinstance(images, dict):
            images = images["pixels"]
        else:
            augmentation = augmentation.changed(flip=False)  # each was
        images = resize(images, self.image_size)
        images = transforms.random_symmetry(images, augmentation, draws["symmetry"][0, 0])
        images = transforms.random_warp(images, augmentation, draws["warp"])
        return transforms.random_colour(images, augmentation, draws["colour"])

    def __call__(self, contents):
        """The image of an encoded file, as in scoring."""
        return self.image({"contents": contents})


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Reads rows by a function of a row and its seed, or leaves them as they are."""

    function: Any

    def reads_each(self, _):
        return self.function is not None

    def draws(self, seed, step, count):
        if self.function is None:
            return ()
        seeds = step_seed(seed, "augmentation", step)
        return tf.random.stateless_uniform([count, 2], seeds, None, None, tf.int32)

    def image(self, row, draws=None):
        if self.function is None:
            return row
        return self.function(row, tf.zeros([2], tf.int32) if draws is None else draws)

    def finish(self, rows, _):
        return rows


def suited(reader, split):
    """The reader of `pipelines.batches`, checked and suited to a split."""
    check_split(split)
    if isinstance(reader, Reader) or (reader is None and split.inputs is None):
        return (reader or Reader()).suited_to(split)
    expected = "`reader` must be a `Reader`, a function of a row and its seed, or None"
    check_type(reader is None or callable(reader), expected, reader=reader)
    return _Rows(reader)


def rows_of(split):
    """What `read` and readers take, of all rows: {kind: array, "box": array}, or the inputs."""
    if split.inputs is not None:
        return split.inputs
    kind = "path" if split.holds_paths else "pixels"
    if split.holds_records:
        kind = "record"
    elif kind == "path" and any(path.lower().endswith(CONVERTED) for path in split.images):
        kind = "converted"
    return {kind: split.images} | ({} if split.boxes is None else {"box": split.boxes})


def with_contents(rows):
    """Rows of records, with their contents."""
    rows = dict(rows)
    paths = rows.pop("record")
    contents = tf.numpy_function(read_all, [paths], tf.string, stateful=False)
    return {"contents": tf.ensure_shape(contents, paths.shape), **rows}


def read(row, channels):
    """One image of a row of `rows_of`, uint8, upright and cut to its box if it has one."""
    box = row.get("box")
    if "pixels" in row:
        return row["pixels"] if box is None else transforms.crop(row["pixels"], box)
    if "converted" in row:
        contents = tf.numpy_function(read_image, [row["converted"]], tf.string, stateful=False)
        contents = tf.ensure_shape(contents, [])
    else:
        contents = row["contents"] if "contents" in row else tf.io.read_file(row["path"])
    if box is None:
        return decode(contents, channels)
    part = transforms.crop(decode(contents, channels, as_stored=True), box)
    return upright(part, contents)


def on_all_cores(dataset):
    """Runs the parallel steps of a `tf.data.Dataset` on all cores, without autotuning.

    The autotuning thread of TensorFlow 2.21 may miss that its iterator is being deleted. The
    deletion then blocks for up to a minute, such as at the end of a program.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    options.autotune.initial_parallelism = os.cpu_count()
    # Rewriting the graph costs more when an iterator begins than it saves, and may add a prefetch,
    # which would read beyond a refresh of hard neighbours.
    options.experimental_optimization.apply_default_optimizations = False
    return dataset.with_options(options)


@contextlib.contextmanager
def named(*splits):
    """Turns a TensorFlow error about images of the splits into an OSError with its cause."""
    try:
        yield
    except tf.errors.OpError as error:
        raise OSError(cause_of(error, *splits)) from error


def cause_of(error, *splits):
    """The image that causes a TensorFlow error, found by reading the files, or its message."""
    if type(error).__name__.removesuffix("Error") in _MACHINE_ERRORS:
        splits = ()
    for split in (split for split in splits if split.holds_paths):
        for row, reason in unreadable(split.images):
            what = f"{split.images[row]} cannot be read ({reason})"
            advice = (
                "repair it, or leave out all such images by --skip_invalid, in a new run; "
                "python -m pipelines.check lists them"
            )
            return f"{what}: {'write the cache again' if split.holds_records else advice}"
        if split.boxes is not None:
            try:
                cut_to_images(split.images, split.boxes, exact=True)
            except ValueError as error:
                return str(error)
    return error.message.partition("\n\t [[")[0].splitlines()[-1]  # below a stack of calls
