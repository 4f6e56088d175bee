"""The EXIF orientation of JPEG, in TensorFlow operations shared by training and serving.

They are few, without loops or functions: each operation costs time even in a branch not taken, and
functions that tf.data calls in parallel may deadlock.
"""

import tensorflow as tf

# Byte of the name of the EXIF segment: the segment is the first, as in the standard, or follows
# that of JFIF.
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


def upright(image, contents):
    """Rotates or mirrors an image upright, by the EXIF orientation of its file.

    Equal to `PIL.ImageOps.exif_transpose` of a JPEG whose EXIF segment is the first or follows that
    of JFIF, as cameras, phones and editors write it, with the tag 0x0112 among the first 256 of its
    first directory. Other images are returned unchanged, also if the segment is damaged.

    Args:
        image: (height, width, channels), as stored in the file.
        contents: Scalar string, the bytes of the file.

    Returns:
        (height, width, channels); height and width swap for orientations 5 to 8.
    """
    named = _named(contents)

    def turned():
        value = _orientation(contents, tf.where(named[0], *_PLACES))
        exchanged = tf.transpose(image, tf.gather(_EXCHANGED, value))
        return tf.raw_ops.Reverse(tensor=exchanged, dims=tf.gather(_REVERSED, value))

    return tf.cond(tf.reduce_any(named), turned, lambda: image)


def _named(contents):
    """(2,) booleans: whether the name of the EXIF segment is at each of the places."""
    head = tf.io.decode_raw(tf.strings.substr(contents, 0, 30), tf.uint8, fixed_length=30)
    places = [[place + i for i in range(len(_NAME))] for place in _PLACES]
    return tf.reduce_all(tf.gather(head, places) == _NAME, axis=1)


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
    wanted, of_two, of_four = (
        tf.where(is_big, *values) for values in zip(_BIG, _LITTLE, strict=True)
    )
    begin = tf.clip_by_value(tf.reduce_sum(segment[4:8] * of_four), 0, _MOST - len(_NAME))
    number = tf.reduce_sum(segment[begin : begin + 2] * of_two)
    entries = tf.slice(segment, [begin + 2], [_ENTRIES * _ENTRY])
    entries = tf.reshape(entries, [_ENTRIES, _ENTRY])
    values = tf.reduce_sum(entries[:, 8:10] * of_two, axis=1)
    good = tf.reduce_all(entries[:, :8] == wanted, axis=1) & (tf.range(_ENTRIES) < number)
    good &= (values >= 1) & (values <= 8) & (is_big | is_little)
    return tf.reduce_max(tf.where(good, values, 1))
