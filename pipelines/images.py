"""Reading, resizing and changing images, in TensorFlow operations."""

import math
import os
import pathlib
from concurrent.futures import ThreadPoolExecutor

import tensorflow as tf
from tqdm import tqdm

from pipelines.boxes import refuse_outside


def decode(contents, channels):
    """One encoded image (JPEG, PNG, GIF, BMP, WebP) as pixels.

    JPEG by INTEGER_ACCURATE, whatever TensorFlow's default: the served model must see the numbers
    of training. Of an animation, the first frame; transparency is dropped, the EXIF orientation
    is not applied. Of a BMP with a palette TensorFlow gives the indices as grey, which is wrong
    for a palette of colours: `find_unreadable` names such files, `decode` cannot tell.

    Args:
        contents: Scalar string, the bytes of the file.
        channels: 3 for colour, 1 for grey; the image is converted.

    Returns:
        (height, width, channels) uint8.

    Raises:
        tf.errors.InvalidArgumentError: If the bytes are not an image of these kinds, or cut off.
    """

    def jpeg():
        return tf.io.decode_jpeg(contents, channels=3, dct_method="INTEGER_ACCURATE")

    def other():
        # Not `channels=3`, which a WebP with transparency refuses.
        image = tf.io.decode_image(contents, channels=0, expand_animations=False)
        has_colour = tf.shape(image)[2] >= 3
        return tf.cond(
            has_colour, lambda: image[:, :, :3], lambda: tf.tile(image[:, :, :1], [1, 1, 3])
        )

    image = tf.cond(tf.io.is_jpeg(contents), jpeg, other)
    image = tf.ensure_shape(image, [None, None, 3])
    return image if channels == 3 else tf.image.rgb_to_grayscale(image)


def crop(image, box):
    """The part of an image inside of a box.

    Args:
        image: (height, width, channels).
        box: (4,) integers: left, upper, right and lower edge, the last two outside of it.

    Returns:
        (lower - upper, right - left, channels), a part of `image` as it stands.

    Raises:
        tf.errors.InvalidArgumentError: If the box is empty or not inside of the image.
    """
    left, top, right, bottom = tf.unstack(tf.cast(box, tf.int32))
    return tf.image.crop_to_bounding_box(image, top, left, bottom - top, right - left)


def resize(images, image_size):
    """Images at another size, bilinear and antialiased; the aspect is not kept.

    Args:
        images: (height, width, channels) or (n, height, width, channels), numbers in [0, 255].
        image_size: (height, width, channels); the channels must be those of the images.

    Returns:
        float32 of that size, in [0, 255]; the very numbers if the size is theirs.
    """
    images = tf.cast(images, tf.float32)
    if images.shape[-3:-1] == tuple(image_size[:2]):
        return images
    # The weights of a pixel sum to 1 only up to rounding, which could pass 255.
    return tf.clip_by_value(tf.image.resize(images, image_size[:2], antialias=True), 0.0, 255.0)


def reader(image_size):
    """The preprocessing of evaluation and serving: encoded bytes -> one float32 image.

    Args:
        image_size: (height, width, channels).
    """
    return lambda contents: resize(decode(contents, image_size[2]), image_size)


def random_crop(image, augmentation, draws):
    """A random part of one image.

    Args:
        image: (height, width, channels).
        augmentation: `Augmentation`; its `crop` and `aspect` are read.
        draws: (4,) floats in [0, 1): area, aspect, top, left.

    Returns:
        (crop height, crop width, channels), a part of `image` as it stands.
    """
    height, width = (tf.cast(n, tf.float32) for n in tf.unstack(tf.shape(image)[:2]))
    area = augmentation.crop + (1.0 - augmentation.crop) * draws[0]
    aspect = tf.exp(math.log(augmentation.aspect) * (2.0 * draws[1] - 1.0))
    aspect = tf.clip_by_value(aspect, area, 1.0 / area)  # or the crop would not fit in the image
    crop_height = tf.maximum(1.0, tf.round(height * tf.sqrt(area / aspect)))
    crop_width = tf.maximum(1.0, tf.round(width * tf.sqrt(area * aspect)))
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


def random_colour(images, augmentation, draws):
    """A batch with other brightness, contrast and saturation, by three uniform draws per image.

    Args:
        images: (n, height, width, channels) float32 in [0, 255].
        augmentation: `Augmentation`; its `colour` is read.
        draws: (n, 3) floats in [0, 1): brightness, contrast, saturation.

    Returns:
        (n, height, width, channels) float32 in [0, 255].
    """
    if not augmentation.colour:
        return images
    signed = 2.0 * draws[:, :, None, None, None] - 1.0
    brightness, contrast, saturation = tf.unstack(augmentation.colour * signed, axis=1)
    grey = tf.image.rgb_to_grayscale(images) if images.shape[-1] == 3 else images
    middle = tf.reduce_mean(grey, axis=(1, 2, 3), keepdims=True)
    images = grey + (1.0 + 2.0 * saturation) * (images - grey)
    images = middle + (1.0 + contrast) * (images - middle)
    return tf.clip_by_value((1.0 + brightness) * images, 0.0, 255.0)


def find_unreadable(paths):
    """Finds the files that `decode` would refuse, or get wrong: a BMP with a palette of colours.

    It refuses what is missing, empty, cut off or not an image.

    Decodes every file on all cores, JPEG at an eighth of its size; shows a progress bar if that
    takes more than two seconds.

    Args:
        paths: Paths of files.

    Returns:
        List of their indices into `paths`, ascending.
    """
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        readable = tqdm(
            pool.map(_is_readable, paths),
            desc="Checking images",
            total=len(paths),
            delay=2,
            unit="image",
        )
        return [index for index, good in enumerate(readable) if not good]


def cause_of(error, *splits):
    """Why TensorFlow failed over the images of splits: the one to mend, or the error's own words.

    Args:
        error: `tf.errors.OpError`.
        *splits: The `Split`s that may hold the image; every file of theirs is read.

    Returns:
        A sentence without its end.
    """
    for split in (split for split in splits if split.holds_paths):
        for index in find_unreadable(split.images):
            return f"{split.images[index]} can no longer be read: mend it"
        if split.boxes is not None:
            try:
                refuse_outside(split)
            except ValueError as refusal:
                return str(refusal)
    return error.message.partition("\n\t [[")[0].splitlines()[-1]  # below a stack of calls


def _is_readable(path):
    try:
        contents = pathlib.Path(path).read_bytes()
        if tf.io.is_jpeg(contents):
            tf.io.decode_jpeg(contents, channels=3, ratio=8)
        else:
            decode(contents, channels=3)
    except (OSError, tf.errors.OpError, ValueError):
        return False
    return not _is_bmp_of_palette_colours(contents)


def _is_bmp_of_palette_colours(contents):
    """Whether these are indices that are not themselves the grey values they stand for."""
    pixels, header, bits = (
        int.from_bytes(contents[first:last], "little")
        for first, last in ((10, 14), (14, 18), (28, 30))
    )
    if contents[:2] != b"BM" or bits >= 24:
        return False
    palette = contents[14 + header : pixels]
    return any(palette[i::4] != bytes(range(len(palette[i::4]))) for i in range(3))
