"""Decoding and resizing of images in TensorFlow operations, shared by training and serving."""

import tensorflow as tf

from tfdml.images.image_files import MAX_PIXELS

_HEADER = 64  # bytes of a header that are read

# Of EXIF. Byte of the name of its segment: this is the first, as in the standard, or follows that
# of JFIF.
_PLACES = (6, 24)
_NAME = list(b"Exif\0\0")  # the rest of the segment is a TIFF file
_MOST = 2**16  # bytes of a segment
_ENTRIES, _ENTRY = 256, 12  # entries read of a directory, bytes of each
# Tag 0x0112, type SHORT, one value; and place values of the bytes of 2- and 4-byte numbers.
_LITTLE = list(b"\x12\1\3\0\1\0\0\0"), [1, 2**8], [1, 2**8, 2**16, 2**24]
_BIG = list(b"\1\x12\0\3\0\0\0\1"), [2**8, 1], [2**24, 2**16, 2**8, 1]
# For each orientation from 0 to 8: whether rows and columns are exchanged, and which are then
# reversed.
_EXCHANGED = [[0, 1, 2]] * 5 + [[1, 0, 2]] * 4
_REVERSED = [[i in (3, 4, 7, 8), i in (2, 3, 6, 7), False] for i in range(9)]


def decode(contents, channels, as_stored=False):
    """Decodes one image (JPEG, PNG, GIF, BMP, WebP) to (height, width, channels) uint8.

    The result equals `PIL.Image.open(file).convert("RGB")`, also for grey and palette images, after
    `PIL.ImageOps.exif_transpose` for a JPEG with EXIF orientation (unless `as_stored`), except:

    * a JPEG in CMYK or YCCK: pixels may differ by 1 through rounding.
    * a GIF with transparent pixels: these are black; Pillow gives them the palette's colour.
    * a PNG of 16 bits: the upper 8 bits; Pillow clips those of grey images at 255.

    Rejected although Pillow reads them: animated WebP, for which TensorFlow 2.21 writes out of
    bounds; compressed, 16-bit and OS/2 BMP. Accepted although damaged: a JPEG with wrong bytes
    before its end, which the library conceals, and a GIF whose first frame is complete. What is no
    complete image, or of more than `MAX_PIXELS`, is an InvalidArgumentError.
    """

    def jpeg():
        image = tf.io.decode_jpeg(contents, channels=3, dct_method="INTEGER_ACCURATE")
        return image if as_stored else upright(image, contents)

    image = tf.cond(tf.io.is_jpeg(contents), jpeg, lambda: _not_jpeg(contents))
    most = tf.constant(3 * MAX_PIXELS, tf.int64)  # a few operations; the header would need many
    too_large = f"an image of more than {MAX_PIXELS:,} pixels cannot be read"
    readable = tf.debugging.assert_less_equal(tf.size(image, tf.int64), most, too_large)
    with tf.control_dependencies([readable]):
        image = tf.ensure_shape(image, [None, None, 3])
    return image if channels == 3 else tf.image.rgb_to_grayscale(image)


def _not_jpeg(contents):
    header = first_bytes(contents)

    def other():
        is_webp = starts(header, b"RIFF") & starts(header, b"WEBPVP8X", at=8)
        animated = is_webp & (header[20] // 2 % 2 == 1)
        still = tf.debugging.assert_equal(animated, False, "an animated WebP cannot be read")
        with tf.control_dependencies([still]):
            # Not `channels=3`, which fails for a WebP with transparency.
            image = tf.io.decode_image(contents, channels=0, expand_animations=False)
        has_colour = tf.shape(image)[2] >= 3
        return tf.cond(
            has_colour, lambda: image[:, :, :3], lambda: tf.tile(image[:, :, :1], [1, 1, 3])
        )

    has_palette = starts(header, b"BM") & (little_endian(header, 28, 2) <= 8)
    return tf.cond(has_palette, lambda: _bmp_of_palette(contents, header), other)


def resize(images, image_size):
    """Resizes images in [0, 255] to (height, width, channels), bilinearly with antialiasing."""
    images = tf.convert_to_tensor(images)
    size = tuple(image_size[:2])
    if images.shape[-3:-1] == size:
        return tf.cast(images, tf.float32)
    if images.shape[-3:-1].is_fully_defined():
        return resized(images, size)
    has_size = tf.reduce_all(tf.shape(images)[-3:-1] == size)
    return tf.cond(has_size, lambda: tf.cast(images, tf.float32), lambda: resized(images, size))


def resized(images, size):
    """Like `resize`, to (height, width), also for images that already have that size."""
    # Not cast before, which would take the memory of large images four times. Clipped, as the
    # weights of a pixel sum to 1 only up to rounding.
    images = tf.cast(tf.image.resize(images, size, antialias=True), tf.float32)
    return tf.clip_by_value(images, 0.0, 255.0)


def upright(image, contents):
    """Rotates or mirrors a (height, width, channels) image by the EXIF orientation of its file.

    Equal to `PIL.ImageOps.exif_transpose` of a JPEG whose EXIF segment is the first or follows that
    of JFIF, with the tag 0x0112 among the first 256 of its first directory. Others stay unchanged.

    The operations are few, without loops or functions: each costs time even in a branch not taken,
    and functions that tf.data calls in parallel may deadlock.
    """
    head = tf.io.decode_raw(tf.strings.substr(contents, 0, 30), tf.uint8, fixed_length=30)
    places = [[place + i for i in range(len(_NAME))] for place in _PLACES]
    named = tf.reduce_all(tf.gather(head, places) == _NAME, axis=1)

    def turned():
        value = _orientation(contents, tf.where(named[0], *_PLACES))
        exchanged = tf.transpose(image, tf.gather(_EXCHANGED, value))
        return tf.raw_ops.Reverse(tensor=exchanged, dims=tf.gather(_REVERSED, value))

    return tf.cond(tf.reduce_any(named), turned, lambda: image)


def _orientation(contents, at):
    """The orientation in the segment whose name begins at byte `at`."""
    # Padded with zeros, so that every directory can be read.
    size = _MOST + 2 + _ENTRIES * _ENTRY
    length = tf.io.decode_raw(tf.strings.substr(contents, at - 2, 2), tf.uint8)
    length = tf.reduce_sum(tf.cast(length, tf.int32) * _BIG[1]) - 2
    segment = tf.strings.substr(contents, at, tf.maximum(length, 0))
    segment = tf.cast(tf.io.decode_raw(segment, tf.uint8, fixed_length=size), tf.int32)
    segment = segment[len(_NAME) :]
    is_big = tf.reduce_all(segment[:4] == list(b"MM\0*"))
    is_little = tf.reduce_all(segment[:4] == list(b"II*\0"))
    wanted, two, four = (tf.where(is_big, *values) for values in zip(_BIG, _LITTLE, strict=True))
    begin = tf.clip_by_value(tf.reduce_sum(segment[4:8] * four), 0, _MOST - len(_NAME))
    number = tf.reduce_sum(segment[begin : begin + 2] * two)
    entries = tf.slice(segment, [begin + 2], [_ENTRIES * _ENTRY])
    entries = tf.reshape(entries, [_ENTRIES, _ENTRY])
    values = tf.reduce_sum(entries[:, 8:10] * two, axis=1)
    good = tf.reduce_all(entries[:, :8] == wanted, axis=1) & (tf.range(_ENTRIES) < number)
    good &= (values >= 1) & (values <= 8) & (is_big | is_little)
    return tf.reduce_max(tf.where(good, values, 1))


def first_bytes(contents):
    """The first bytes, (64,) int32, padded with zeros."""
    first = tf.io.decode_raw(tf.strings.substr(contents, 0, _HEADER), tf.uint8)
    padded = tf.pad(tf.cast(first, tf.int32), [[0, _HEADER - tf.shape(first)[0]]])
    return tf.ensure_shape(padded, [_HEADER])


def starts(header, text, at=0):
    return tf.reduce_all(header[at : at + len(text)] == list(text))


def little_endian(header, at, count):
    return tf.reduce_sum(header[at : at + count] * [256**i for i in range(count)])


def _bmp_of_palette(contents, header):
    """Decodes a BMP with 1, 2, 4 or 8 bits of palette index per pixel: (height, width, 3) uint8.

    `tf.io.decode_bmp` returns 8-bit indices as colours, and rejects fewer bits.
    """
    start, size, width, height = (little_endian(header, at, 4) for at in (10, 14, 18, 22))
    bits, compression = little_endian(header, 28, 2), little_endian(header, 30, 4)
    readable = (size >= 40) & (compression == 0) & (bits > 0)
    readable &= (width > 0) & (height != 0) & (start >= 14 + size)
    known = tf.debugging.assert_equal(readable, True, "a BMP of this kind cannot be read")
    with tf.control_dependencies([known]):
        stride = (bits * width + 31) // 32 * 4  # rows end at a multiple of 4 bytes
    body = tf.strings.substr(contents, start, stride * tf.abs(height))
    rows = tf.reshape(tf.io.decode_raw(body, tf.uint8), [tf.abs(height), stride, 1])
    shifts = tf.range(8 - bits, -1, -bits)  # of the indices in a byte, the first highest
    indices = tf.bitwise.right_shift(tf.cast(rows, tf.int32), shifts) % 2**bits
    indices = tf.reshape(indices, [tf.abs(height), -1])[:, :width]
    indices = tf.cond(height > 0, lambda: indices[::-1], lambda: indices)  # bottom-up, usually
    colours = tf.strings.substr(contents, 14 + size, (start - 14 - size) // 4 * 4)
    blue_green_red = tf.reshape(tf.io.decode_raw(colours, tf.uint8), [-1, 4])[:, :3]
    return tf.gather(blue_green_red[:, ::-1], indices)
