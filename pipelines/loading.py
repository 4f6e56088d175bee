"""Readers: from a row of a split to an image, the same in training, scoring and serving."""

import dataclasses
from typing import Any

import tensorflow as tf

from pipelines.augmentation import Augmentation
from pipelines.images import (
    crop,
    prepare,
    random_colour,
    random_flip,
    random_part,
    random_symmetry,
    random_warp,
)
from pipelines.preprocessing import Preprocessing
from pipelines.records import read_batches
from pipelines.sampling import step_seed
from pipelines.split import check_split
from tfdml.checks import check, check_image_size, check_type
from tfdml.images.decoding import decode, resize, upright


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
        """This reader with the size and what is left of the preprocessing of a split of images.

        Raises:
            ValueError: If it has none, the size does not suit them, or is missing for paths.
        """
        needed = "a `Reader` makes images: a split of `inputs` takes a function, or None"
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
        per_image = {"augmentation": 9, "colour": 3}
        place, colour = (
            tf.random.stateless_uniform([count, number], step_seed(seed, purpose, step))
            for purpose, number in per_image.items()
        )
        symmetry = tf.random.stateless_uniform([], step_seed(seed, "symmetry", step))
        place, warp = tf.split(place, [4, 5], axis=1)
        symmetry = tf.fill([count, 1], symmetry)
        return {"place": place, "warp": warp, "colour": colour, "symmetry": symmetry}

    def image(self, row, draws=None):
        """One image: in training cropped and mirrored by its draws, in scoring as it is served.

        Args:
            row: As for `pipelines.batches`.
            draws: Those of the image, out of `draws` of its batch; None in scoring.

        Returns:
            `image_size`; float32, in training uint8 where possible.
        """
        image, size, augmentation = (
            read(row, self.image_size[2]),
            self.image_size,
            self.augmentation,
        )
        if draws is None:
            return prepare(image, size, self.preprocessing)
        image = random_part(image, size, augmentation, self.preprocessing, draws["place"])
        return tf.ensure_shape(random_flip(image, augmentation, draws["warp"][0]), size)

    def finish(self, images, draws):
        """A batch of training, of what `image` made or of rows of pixels."""
        augmentation = self.augmentation
        if isinstance(images, dict):
            images = images["pixels"]
        else:
            augmentation = augmentation.changed(flip=False)  # each was
        images = resize(images, self.image_size)
        images = random_symmetry(images, augmentation, draws["symmetry"][0, 0])
        images = random_warp(images, augmentation, draws["warp"])
        return random_colour(images, augmentation, draws["colour"])

    def __call__(self, contents):
        """The image of an encoded file, as in scoring."""
        return self.image({"contents": contents})


@dataclasses.dataclass(frozen=True)
class Rows:
    """Reads rows by a function of a row and its seed, or leaves them as they are."""

    function: Any = None

    def suited_to(self, split):
        del split  # any
        return self

    def reads_each(self, split):
        del split
        return self.function is not None

    def draws(self, seed, step, count):
        """(count, 2) int32, a seed of each row, for a function."""
        if self.function is None:
            return ()
        seeds = step_seed(seed, "augmentation", step)
        return tf.random.stateless_uniform([count, 2], seeds, None, None, tf.int32)

    def image(self, row, draws=None):
        """What the function makes of a row; in scoring of the seed 0, 0."""
        if self.function is None:
            return row
        return self.function(row, tf.zeros([2], tf.int32) if draws is None else draws)

    def finish(self, rows, draws):
        del draws
        return rows


def suited(reader, split):
    """The reader of `pipelines.batches`, checked and suited to a split.

    Raises:
        TypeError: If `split` is not a `Split`, or `reader` no reader.
        ValueError: If the reader does not suit the split.
    """
    check_split(split)
    if reader is None:
        reader = Reader() if split.inputs is None else Rows()
    if not hasattr(reader, "finish"):
        expected = "`reader` must be a `Reader`, a function of a row and its seed, or None"
        check_type(callable(reader), expected, reader=reader)
        reader = Rows(reader)
    return reader.suited_to(split)


def rows_of(split):
    """What `read` and readers take, of all rows: {name: array}, or the inputs as they are."""
    if split.inputs is not None:
        return split.inputs
    kind = ("record" if split.holds_records else "path") if split.holds_paths else "pixels"
    return {kind: split.images} | ({} if split.boxes is None else {"box": split.boxes})


def with_contents(rows):
    """Rows of records, with their contents."""
    rows = dict(rows)
    return {"contents": read_batches(rows.pop("record")), **rows}


def read(row, channels):
    """One image of a split, upright and cut to its box if it has one.

    Args:
        row: {"pixels": (height, width, channels) uint8}, {"path": of a file} or {"contents": of
            one}; "box": (4,) integers, in the pixels of the file whatever its EXIF orientation.
        channels: Of the image.

    Returns:
        (height, width, channels) uint8.
    """
    box = row.get("box")
    if "pixels" in row:
        return row["pixels"] if box is None else crop(row["pixels"], box)
    contents = row["contents"] if "contents" in row else tf.io.read_file(row["path"])
    if box is None:
        return decode(contents, channels)
    return upright(crop(decode(contents, channels, as_stored=True), box), contents)
