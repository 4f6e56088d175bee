"""Several views of an image, whose embeddings are averaged: crops and mirror images."""

import tensorflow as tf

from tfdml.checks import check


def views(images, image_size, *, crops=1, mirror=False):
    """The views of a batch of images.

    Args:
        images: (n, height, width, channels), of `image_size` or, for several crops, larger.
        image_size: (height, width, channels) of a view.
        crops: 1 for the whole images; 5 for their corners, from left to right and from top to
            bottom, and their centre; 10 for these and their mirror images.
        mirror: Whether to add the mirror images; 10 crops always have them.

    Returns:
        List of (n, *image_size) tensors.

    Raises:
        ValueError: If `crops` is another number, the images are too small or, for one crop, not
            of `image_size`.

    Source:
        Krizhevsky, Sutskever, Hinton. ImageNet classification with deep convolutional neural
        networks. NIPS 2012, section 4.1, for 10 crops.
    """
    check(crops in (1, 5, 10), "`crops` must be 1, 5 or 10", crops=crops)
    height, width, _ = image_size
    down, right = images.shape[1] - height, images.shape[2] - width
    fits = min(down, right) >= 0 and (crops > 1 or (down, right) == (0, 0))
    expected = "`images` must have the size of a view, or for several crops at least that"
    received = {"images.shape": tuple(images.shape), "image_size": tuple(image_size)}
    check(fits, expected, **received)
    corners = [(0, 0), (0, right), (down, 0), (down, right), (down // 2, right // 2)]
    places = corners[:1] if crops == 1 else corners
    parts = [images[:, top : top + height, left : left + width] for top, left in places]
    if mirror or crops == 10:
        parts += [tf.reverse(part, axis=[2]) for part in parts]
    return parts
