"""Batches of images for training and for evaluation."""

import numbers

import numpy as np
import tensorflow as tf

from pipelines.augmentation import Augmentation
from pipelines.images import decode, random_colour, random_crop, random_warp, resize
from pipelines.sampling import balanced_indices, check_integers, group_indices, step_seed
from pipelines.split import check_split

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
    image_size, augmentation = _checked(split, image_size, augmentation)
    indices = balanced_indices(
        split.labels, classes_per_batch, images_per_class, seed, start_step, sampler
    )
    batch = classes_per_batch * images_per_class
    return _batches(split, indices, batch, seed, image_size, augmentation, start_step)


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
):
    """Batches of classes that are kin, without end, each a function of (seed, step) alone.

    Each has all images of P classes of G super-classes, P / G of each, as far as they fit. So most
    of its negative pairs are of one super-class, which are the hard ones, and its classes have as
    many images as they have. `group_indices` in `pipelines/sampling.py` has the details.

    Args:
        split: `Split` with `super_labels`.
        classes_per_batch: P, distinct classes; fewer where a super-class has fewer than P / G or
            a single image of a class is left.
        batch_size: Most images of a batch, above P; images left out at random make it fit.
        seed: Of the choice of images and of their augmentation.
        image_size: As for `balanced_batches`.
        augmentation: `Augmentation`, or None for none.
        start_step: Step of the first batch: the optimizer's, to resume.
        super_classes: G, which must divide P.
        images_per_class: Most images of a class, >= 2; all if None.
        evenly: Whether every super-class, and every class of one, is as likely as any other; if
            not, in proportion to its images.

    Returns:
        `tf.data.Dataset` of `(images, labels)`: (m, height, width, channels) float32 in [0, 255]
        and (m,) int64, 2 <= m <= `batch_size`, the rows of a class in a row, two or more.

    Raises:
        TypeError: If a number is not an integer, `evenly` no bool, `split` no `Split` or
            `augmentation` no `Augmentation`.
        ValueError: If the split has no `super_labels` or too few super-classes, a number is out of
            range, `image_size` is not a size of these images, or paths come without it.
    """
    image_size, augmentation = _checked(split, image_size, augmentation)
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
    return _batches(split, indices, batch_size, seed, image_size, augmentation, start_step)


def _batches(split, indices, batch, seed, image_size, augmentation, start_step):
    """The images and labels of indices, `batch` at a time or, of unknown shape, at most so many."""
    all_images, all_labels = tf.constant(split.images), tf.constant(split.labels)
    size = indices.element_spec.shape[0]

    def gather(step, indices):
        # Rows beyond those of the batch are loaded too, and left out when all are there.
        kept = tf.range(batch) < tf.size(indices)
        indices = tf.ensure_shape(tf.pad(indices, [[0, batch - tf.size(indices)]]), [batch])
        draws = tf.random.stateless_uniform(
            [batch, _CROP_DRAWS + _WARP_DRAWS], step_seed(seed, "augmentation", step)
        )
        colours = tf.random.stateless_uniform(
            [batch, _COLOUR_DRAWS], step_seed(seed, "colour", step)
        )
        draws = tf.concat([draws, colours], axis=1)
        return tf.gather(all_images, indices), tf.gather(all_labels, indices), draws, kept

    def load(image, label, draws, kept):
        if split.holds_paths:
            image = decode(tf.io.read_file(image), image_size[2])
        if augmentation.crops:
            image = random_crop(image, augmentation, draws[:_CROP_DRAWS])
        return tf.ensure_shape(resize(image, image_size), image_size), label, draws, kept

    def finish(images, labels, draws, kept):
        if size is None:
            images, labels, draws = (
                tf.boolean_mask(rows, kept) for rows in (images, labels, draws)
            )
        _, warps, colours = tf.split(draws, [_CROP_DRAWS, _WARP_DRAWS, _COLOUR_DRAWS], axis=1)
        images = random_warp(resize(images, image_size), augmentation, warps)
        images = random_colour(images, augmentation, colours)
        return tf.ensure_shape(images, [size, *image_size]), labels

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


def _checked(split, image_size, augmentation):
    augmentation = Augmentation() if augmentation is None else augmentation
    if not isinstance(augmentation, Augmentation):
        raise TypeError(
            "`augmentation` must be an `Augmentation` or None. "
            f"Received: augmentation={augmentation!r}"
        )
    return _checked_size(split, image_size), augmentation


def _checked_size(split, image_size):
    check_split(split)
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
