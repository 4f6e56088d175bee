"""Batches of images for training and for evaluation."""

import numbers

import numpy as np
import tensorflow as tf

from pipelines.augmentation import Augmentation
from pipelines.images import decode, random_colour, random_crop, random_warp, resize
from pipelines.sampling import balanced_indices, check_integers, step_seed
from pipelines.split import Split

_CROP_DRAWS, _WARP_DRAWS, _COLOUR_DRAWS = 4, 5, 3


def balanced_batches(
    split,
    classes_per_batch,
    images_per_class,
    seed=0,
    image_size=None,
    augmentation=None,
    start_step=0,
    sampler="balanced",
):
    """Batches of P classes × K images, without end, each a function of (seed, step) alone.

    Args:
        split: `Split` to draw from.
        classes_per_batch: P, distinct classes.
        images_per_class: K, distinct images of each (a smaller class repeats its images).
        seed: Of the choice of images and of their augmentation.
        image_size: (height, width, channels), of paths 1 or 3 channels; that of the images if
            None, which paths need.
        augmentation: `Augmentation`, or None for none.
        start_step: Step of the first batch: the optimizer's, to resume.
        sampler: `"balanced"` for K images of each class, or `"mixed"` for K to 2 K of fewer.

    Returns:
        `tf.data.Dataset` of `(images, labels)`: (P × K, height, width, channels) float32 in
        [0, 255] and (P × K,) int64, the rows of a class in a row.

    Raises:
        TypeError: If P, K, the seed or the step is not an integer, `split` no `Split` or
            `augmentation` no `Augmentation`.
        ValueError: If one of them is out of range, `image_size` is not a size of these images, or
            paths come without it.
    """
    augmentation = Augmentation() if augmentation is None else augmentation
    if not isinstance(augmentation, Augmentation):
        raise TypeError(
            "`augmentation` must be an `Augmentation` or None. "
            f"Received: augmentation={augmentation!r}"
        )
    image_size = _checked_size(split, image_size)
    indices = balanced_indices(
        split.labels, classes_per_batch, images_per_class, seed, start_step, sampler
    )
    all_images, all_labels = tf.constant(split.images), tf.constant(split.labels)
    batch = classes_per_batch * images_per_class

    def gather(step, indices):
        draws = tf.random.stateless_uniform(
            [batch, _CROP_DRAWS + _WARP_DRAWS], step_seed(seed, "augmentation", step)
        )
        colours = tf.random.stateless_uniform(
            [batch, _COLOUR_DRAWS], step_seed(seed, "colour", step)
        )
        draws = tf.concat([draws, colours], axis=1)
        return tf.gather(all_images, indices), tf.gather(all_labels, indices), draws

    def load(image, label, draws):
        if split.holds_paths:
            image = decode(tf.io.read_file(image), image_size[2])
        if augmentation.crops:
            image = random_crop(image, augmentation, draws[:_CROP_DRAWS])
        return tf.ensure_shape(resize(image, image_size), image_size), label, draws

    def finish(images, labels, draws):
        _, warps, colours = tf.split(draws, [_CROP_DRAWS, _WARP_DRAWS, _COLOUR_DRAWS], axis=1)
        images = random_warp(resize(images, image_size), augmentation, warps)
        images = random_colour(images, augmentation, colours)
        return tf.ensure_shape(images, [batch, *image_size]), labels

    steps = tf.data.Dataset.counter(tf.constant(start_step, tf.int64))
    batches = tf.data.Dataset.zip(steps, indices).map(gather)
    if split.holds_paths or augmentation.crops:  # images of several sizes: one by one
        images = batches.unbatch().map(load, num_parallel_calls=tf.data.AUTOTUNE)
        batches = images.batch(batch, drop_remainder=True)
    return batches.map(finish, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def evaluation_batches(split, image_size=None, batch_size=256):
    """All images of a split in order, unchanged but for their size.

    Args:
        split: `Split`.
        image_size: (height, width, channels), of paths 1 or 3 channels; that of the images if
            None, which paths need.
        batch_size: Images in a batch; the last may have fewer.

    Returns:
        `tf.data.Dataset` of (batch, height, width, channels) float32 in [0, 255].

    Raises:
        TypeError: If `split` is no `Split` or `batch_size` no integer.
        ValueError: If `image_size` is not a size of these images, paths come without it, or
            `batch_size` is below 1.
    """
    check_integers(1, batch_size=batch_size)
    image_size = _checked_size(split, image_size)

    def load(image):
        if split.holds_paths:
            image = decode(tf.io.read_file(image), image_size[2])
        return tf.ensure_shape(resize(image, image_size), image_size)

    return (
        tf.data.Dataset.from_tensor_slices(split.images)
        .map(load, num_parallel_calls=tf.data.AUTOTUNE)
        .batch(batch_size)
        .prefetch(tf.data.AUTOTUNE)
    )


def _checked_size(split, image_size):
    if not isinstance(split, Split):
        raise TypeError(
            "`split` must be a `Split`, such as `dataset.train`. "
            f"Received: split of type {type(split).__name__}"
        )
    if image_size is None and not split.holds_paths:
        return split.images.shape[1:]
    if np.shape(image_size) != (3,) or not all(
        isinstance(n, numbers.Integral) and n > 0 for n in image_size
    ):
        raise ValueError(
            "`image_size` must be (height, width, channels)"
            f"{' for paths' if split.holds_paths else ''}. Received: image_size={image_size!r}"
        )
    if split.holds_paths and image_size[2] not in (1, 3):
        raise ValueError(
            "`image_size` must have 1 or 3 channels for paths. "
            f"Received: image_size={tuple(image_size)}"
        )
    if not split.holds_paths and image_size[2] != split.images.shape[3]:
        raise ValueError(
            "`image_size` must have the channels of the images. "
            f"Received: image_size={tuple(image_size)}, channels={split.images.shape[3]}"
        )
    return tuple(image_size)
