"""Reading, resizing and changing images, in TensorFlow operations."""

import math
import os
from concurrent.futures import ThreadPoolExecutor

import tensorflow as tf
from PIL import Image
from tqdm import tqdm


def decode(contents, channels):
    """One encoded image (JPEG, PNG, GIF, BMP, WebP) as (height, width, channels) uint8.

    JPEG by INTEGER_ACCURATE, whatever TensorFlow's default: the served model must see the numbers
    of training. Of an animation, the first frame.
    """

    def jpeg():
        return tf.io.decode_jpeg(contents, channels=channels, dct_method="INTEGER_ACCURATE")

    def other():
        image = tf.io.decode_image(contents, channels=0, expand_animations=False)
        rgb = tf.cond(tf.shape(image)[2] == 4, lambda: image[:, :, :3], lambda: image)
        grey_or_rgb = tf.cond(tf.shape(rgb)[2] == 2, lambda: rgb[:, :, :1], lambda: rgb)
        return _with_channels(grey_or_rgb, channels)

    image = tf.cond(tf.io.is_jpeg(contents), jpeg, other)
    image.set_shape([None, None, channels])
    return image


def _with_channels(image, channels):
    if channels == 1:
        return tf.cond(
            tf.shape(image)[2] == 3,
            lambda: tf.image.rgb_to_grayscale(tf.ensure_shape(image, [None, None, 3])),
            lambda: tf.ensure_shape(image, [None, None, 1]),
        )
    return tf.cond(tf.shape(image)[2] == 1, lambda: tf.tile(image, [1, 1, channels]), lambda: image)


def resize(images, image_size):
    """Images (..., height, width, channels) at another size: float32 in [0, 255], antialiased."""
    images = tf.cast(images, tf.float32)
    if images.shape[-3:-1] == tuple(image_size[:2]):
        return images
    return tf.image.resize(images, image_size[:2], antialias=True)


def reader(image_size):
    """The preprocessing of evaluation and serving: encoded bytes -> one float32 image.

    Args:
        image_size: (height, width, channels).
    """
    return lambda contents: resize(decode(contents, image_size[2]), image_size)


def random_crop(image, augmentation, draws):
    """A random part of one image, by four uniform draws: area, aspect, top, left."""
    height, width = (tf.cast(n, tf.float32) for n in tf.unstack(tf.shape(image)[:2]))
    area = augmentation.crop + (1.0 - augmentation.crop) * draws[0]
    aspect = tf.exp(math.log(augmentation.aspect) * (2.0 * draws[1] - 1.0))
    crop_height = tf.maximum(1.0, tf.round(height * tf.minimum(1.0, tf.sqrt(area / aspect))))
    crop_width = tf.maximum(1.0, tf.round(width * tf.minimum(1.0, tf.sqrt(area * aspect))))
    top = tf.round((height - crop_height) * draws[2])
    left = tf.round((width - crop_width) * draws[3])
    box = [tf.cast(n, tf.int32) for n in (top, left, crop_height, crop_width)]
    return image[box[0] : box[0] + box[2], box[1] : box[1] + box[3]]


def random_warp(images, augmentation, draws):
    """A batch flipped, turned, zoomed and shifted, by five uniform draws per image.

    Args:
        images: (n, height, width, channels) float32.
        augmentation: `Augmentation`.
        draws: (n, 5) floats in [0, 1): flip, rotation, zoom, two shifts.

    Returns:
        (n, height, width, channels) float32; what comes from outside repeats the border.
    """
    if augmentation.flip:
        mirrored = (draws[:, 0] < 0.5)[:, None, None, None]
        images = tf.where(mirrored, images[:, :, ::-1], images)
    if not augmentation.warps:
        return images
    height, width = images.shape[1:3]
    signed = 2.0 * draws[:, 1:] - 1.0
    angle = math.radians(augmentation.rotation) * signed[:, 0]
    scale = 1.0 / (1.0 + augmentation.zoom * signed[:, 1])
    # The operation asks, for every pixel of the result, where it comes from.
    cosine, sine = scale * tf.cos(angle), scale * tf.sin(angle)
    middle_x, middle_y = (width - 1) / 2.0, (height - 1) / 2.0
    from_x = middle_x + augmentation.shift * width * signed[:, 2]
    from_y = middle_y + augmentation.shift * height * signed[:, 3]
    zero = tf.zeros_like(angle)
    rows = [cosine, -sine, from_x - cosine * middle_x + sine * middle_y]
    rows += [sine, cosine, from_y - sine * middle_x - cosine * middle_y, zero, zero]
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=tf.stack(rows, axis=1),
        output_shape=[height, width],
        interpolation="BILINEAR",
        fill_mode="NEAREST",
        fill_value=0.0,
    )


def find_unreadable(paths):
    """Indices of the files that do not decode: empty, cut off, not an image.

    Decodes every file on all cores, JPEG at an eighth of its size; shows a progress bar if that
    takes more than two seconds.
    """
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        readable = tqdm(
            pool.map(_is_readable, paths, chunksize=32),
            desc="Checking images",
            total=len(paths),
            delay=2,
            unit="image",
        )
        return [index for index, good in enumerate(readable) if not good]


def _is_readable(path):
    try:
        with Image.open(path) as image:
            image.draft(image.mode, (1, 1))
            image.load()
    except Exception:  # what a broken file makes Pillow raise has no common class
        return False
    return True
