"""Preprocessing and augmentation of images, in TensorFlow operations."""

import math

import tensorflow as tf

from tfdml.images.decoding import resize, resized

_LIGHTEST, _MARGIN, _WHITE = 250, 15, 255  # white border: least grey, margin kept


def crop(image, box):
    """The part of an image inside a box, whose right and lower edge are exclusive."""
    left, top, right, bottom = tf.unstack(tf.cast(box, tf.int32))
    return tf.image.crop_to_bounding_box(image, top, left, bottom - top, right - left)


def warp(image, size, preprocessing):
    """One image at the `size`, (height, width), before the crop, in 8 bits."""
    if not (preprocessing.trim_white or preprocessing.keep_aspect):
        return tf.ensure_shape(_in_eight_bits(image, size), (*size, image.shape[-1]))
    if preprocessing.keep_aspect:
        return _in_eight_bits(image, _sides(image, size, covers=True))
    image = trim_white(image)
    sides = _sides(image, size, covers=False)
    before = (size - sides) // 2
    margins = tf.stack([before, size - sides - before], axis=1)
    margins = tf.concat([margins, [[0, 0]]], axis=0)
    image = tf.pad(_in_eight_bits(image, sides), margins, constant_values=_WHITE)
    return tf.ensure_shape(image, (*size, image.shape[-1]))


def trim_white(image):
    """The rectangle of all pixels of one image with grey below 250, with a margin; all if white.

    Source:
        `load_cropped_images.m` of the released code of Song, Xiang, Jegelka, Savarese. CVPR 2016,
        whose `imcrop` cuts one pixel more than the margin of 15 to the right and below.
        Differs: that code fails on an image that is white throughout.
    """
    grey = tf.image.rgb_to_grayscale(image) if image.shape[-1] == 3 else image
    dark = grey[:, :, 0] < _LIGHTEST
    (top, bottom), (left, right) = (_ends(tf.reduce_any(dark, axis=axis)) for axis in (1, 0))
    return image[top:bottom, left:right]


def part(image, image_size, preprocessing, augmentation, draws=None):
    """The part of one warped image that a network sees: its centre, or by 4 draws a random one.

    The draws are of area, aspect, top and left. Without a crop it is the whole image, resized.
    """
    if draws is not None and augmentation.crops:
        height, width = preprocessing.size_of_warp(image_size)
        shape = width / height if preprocessing.keep_aspect else None
        return resize(random_crop(image, augmentation, draws, shape), image_size)
    if not preprocessing.takes_crops:
        return resize(image, image_size)
    free = tf.shape(image)[:2] - image_size[:2]
    if draws is None:
        place = free // 2
    else:
        place = tf.cast(tf.floor(draws[2:4] * tf.cast(free + 1, tf.float32)), tf.int32)
    begin = tf.concat([place, [0]], axis=0)
    image, mean = tf.slice(image, begin, image_size), preprocessing.mean_image
    if mean is None:
        return image
    mean = mean - mean.mean(axis=(0, 1))  # the network subtracts the means of the channels
    return tf.cast(image, tf.float32) - tf.slice(mean, begin, image_size)


def random_crop(image, augmentation, draws, shape=None):
    """A part of one image by 4 draws; `shape` is width / height at aspect 1, None the image's."""
    height, width = (tf.cast(n, tf.float32) for n in tf.unstack(tf.shape(image)[:2]))
    area = augmentation.crop + (1.0 - augmentation.crop) * draws[0]
    aspect = tf.exp(math.log(augmentation.aspect) * (2.0 * draws[1] - 1.0))
    # Otherwise the crop would not fit in the image.
    if shape is None:
        aspect = tf.clip_by_value(aspect, area, 1.0 / area)
    else:
        aspect *= shape * height / width
        area = tf.minimum(area, tf.minimum(aspect, 1.0 / aspect))
    crop_height = tf.maximum(1.0, tf.round(height * tf.sqrt(area / aspect)))
    crop_width = tf.maximum(1.0, tf.round(width * tf.sqrt(area * aspect)))
    top = tf.round((height - crop_height) * draws[2])
    left = tf.round((width - crop_width) * draws[3])
    box = [tf.cast(n, tf.int32) for n in (top, left, crop_height, crop_width)]
    return image[box[0] : box[0] + box[2], box[1] : box[1] + box[3]]


def random_flip(image, augmentation, draw):
    """One image, mirrored left to right at random; faster than `random_warp` of a batch."""
    if not augmentation.flip:
        return image
    return tf.cond(draw < 0.5, lambda: tf.reverse(image, axis=[1]), lambda: image)


def random_symmetry(images, augmentation, draw):
    """A batch, all of whose images are turned by one multiple of 90 degrees, and maybe mirrored."""
    if augmentation.symmetries == 1:
        return images
    number = tf.cast(draw * augmentation.symmetries, tf.int32)
    images = tf.cond(number >= 4, lambda: tf.reverse(images, axis=[2]), lambda: images)
    return tf.image.rot90(images, number % 4)


def random_warp(images, augmentation, draws):
    """A batch flipped, rotated, zoomed and shifted, by (n, 5) draws in [0, 1), in this order."""
    if augmentation.flip:
        mirrored = (draws[:, 0] < 0.5)[:, None, None, None]
        images = tf.where(mirrored, tf.reverse(images, axis=[2]), images)
    if not augmentation.warps:
        return images
    height, width = images.shape[1:3]
    signed = 2.0 * draws[:, 1:] - 1.0
    angle = math.radians(augmentation.rotation) * signed[:, 0]
    scale = 1.0 / (1.0 + augmentation.zoom * signed[:, 1])
    # The operation maps every pixel of the result to its place in the input.
    cosine, sine = scale * tf.cos(angle), scale * tf.sin(angle)
    middle_x, middle_y = (width - 1) / 2.0, (height - 1) / 2.0
    from_x = middle_x + augmentation.shift * width * signed[:, 2]
    from_y = middle_y + augmentation.shift * height * signed[:, 3]
    zero = tf.zeros_like(angle)
    rows = [cosine, -sine, from_x - cosine * middle_x + sine * middle_y]
    rows += [sine, cosine, from_y - sine * middle_x - cosine * middle_y, zero, zero]
    sampling = {"interpolation": "BILINEAR", "fill_mode": "NEAREST", "fill_value": 0.0}
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images, transforms=tf.stack(rows, axis=1), output_shape=[height, width], **sampling
    )


def random_colour(images, augmentation, draws):
    """A batch with other brightness, contrast and saturation, by (n, 3) draws in [0, 1)."""
    if not augmentation.colour:
        return images
    signed = 2.0 * draws[:, :, None, None, None] - 1.0
    brightness, contrast, saturation = tf.unstack(augmentation.colour * signed, axis=1)
    grey = tf.image.rgb_to_grayscale(images) if images.shape[-1] == 3 else images
    middle = tf.reduce_mean(grey, axis=(1, 2, 3), keepdims=True)
    images = grey + (1.0 + 2.0 * saturation) * (images - grey)
    images = middle + (1.0 + contrast) * (images - middle)
    return tf.clip_by_value((1.0 + brightness) * images, 0.0, 255.0)


def views(images, image_size, *, crops=1, mirror=False):
    """The views of a batch of images, whose embeddings are averaged, as a list of batches.

    1 crop is the whole images; 5 are their corners and their centre; 10 add the mirror images, as
    `mirror` does (Krizhevsky, Sutskever, Hinton. NIPS 2012, section 4.1).
    """
    height, width, _ = image_size
    down, right = images.shape[1] - height, images.shape[2] - width
    corners = [(0, 0), (0, right), (down, 0), (down, right), (down // 2, right // 2)]
    places = corners[:1] if crops == 1 else corners
    parts = [images[:, top : top + height, left : left + width] for top, left in places]
    if mirror or crops == 10:
        parts += [tf.reverse(part, axis=[2]) for part in parts]
    return parts


def _in_eight_bits(image, size):
    has_size = tf.reduce_all(tf.shape(image)[:2] == size)
    return tf.cond(
        has_size, lambda: image, lambda: tf.cast(tf.round(resized(image, size)), tf.uint8)
    )


def _sides(image, size, covers):
    """The sides, (2,) int32, of an image of this aspect that covers a size, or fits in it."""
    height, width = tf.unstack(tf.cast(tf.shape(image)[:2], tf.int64))
    down, across = height * size[1], width * size[0]
    wide = across >= down
    if covers:
        down, across = (2 * down + width) // (2 * width), (2 * across + height) // (2 * height)
    else:
        down, across = -(-down // width), -(-across // height)
    sides = tf.where(wide == covers, [size[0], across], [down, size[1]])
    return tf.cast(sides, tf.int32)


def _ends(dark):
    """First and end of the lines with a dark pixel, with the margins of `trim_white`."""
    lines = tf.where(dark | ~tf.reduce_any(dark))[:, 0]  # all lines of a white image
    end = tf.minimum(tf.reduce_max(lines) + _MARGIN + 2, tf.size(dark, tf.int64))
    return tf.maximum(tf.reduce_min(lines) - _MARGIN, 0), end
