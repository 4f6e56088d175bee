"""The EXIF orientation of JPEG, in TensorFlow operations that training and serving share."""

import tensorflow as tf

# Where the segment of EXIF begins, whose name is 4 bytes behind: first, as the standard has it, or
# after that of JFIF.
_PLACES = (2, 20)
_ENTRY = 12  # bytes of an entry of a directory
_ORIENTATION, _SHORT = 0x0112, 3  # its tag and its type

# Makes a function one operation: in a branch that is not taken, each of its own would cost time.
called = tf.function(autograph=False, experimental_attributes={"_noinline": True})


def upright(image, contents):
    """An image turned as the EXIF orientation of its file says that it is to be looked at.

    Equal to `PIL.ImageOps.exif_transpose` of a JPEG whose EXIF segment is the first or follows that
    of JFIF, as cameras, phones and editors write it, with the tag 0x0112 in its first directory.
    An image of any other file stays as it is; nothing in the segment is an error.

    Args:
        image: (height, width, channels), as stored in the file.
        contents: Scalar string, the bytes of the file.

    Returns:
        (height, width, channels), the sides exchanged by an orientation from 5 to 8.
    """
    has_exif = tf.reduce_any(_has_exif(contents))
    return tf.cond(has_exif, lambda: _turned(image, contents), lambda: image)


def orientation(contents):
    """The EXIF orientation of a file as `upright` reads it: scalar int64, 1 to 8; 1 if it has none.

    Args:
        contents: As of `upright`.
    """
    first, second = tf.unstack(_has_exif(contents))
    at = tf.cast(tf.where(first, *_PLACES), tf.int64)
    length = _number(_bytes(contents, at + 2, 2), True) - 8
    segment = _part(contents, at + 10, tf.maximum(length, 0))  # a TIFF file
    head = _bytes(segment, 0, 8)
    big_endian = _starts(head, b"MM\0*")
    directory = _number(head[4:], big_endian)
    number = _number(_bytes(segment, directory, 2), big_endian)
    entries = tf.reshape(_bytes(segment, directory + 2, number * _ENTRY), [-1, _ENTRY])
    fields = zip((0, 2, 4, 8), (2, 4, 8, 10), strict=True)
    tags, types, counts, values = (
        _number(entries[:, first:last], big_endian) for first, last in fields
    )
    good = (tags == _ORIENTATION) & (types == _SHORT) & (counts == 1)
    good &= (values >= 1) & (values <= 8)
    good &= (first | second) & (big_endian | _starts(head, b"II*\0"))
    return tf.concat([values[good], [1]], axis=0)[0]


def _has_exif(contents):
    """(2,) booleans: whether the segment of EXIF stands at each of the places."""
    head = tf.io.decode_raw(tf.strings.substr(contents, 0, 30), tf.uint8, fixed_length=30)
    names = [[place + 4 + i for i in range(6)] for place in _PLACES]
    return tf.reduce_all(tf.gather(head, names) == list(b"Exif\0\0"), axis=1)


@called
def _turned(image, contents):
    value = orientation(contents)
    image = tf.cond(value >= 5, lambda: tf.transpose(image, [1, 0, 2]), lambda: image)
    rows = tf.reduce_any(value == [3, 4, 7, 8])
    columns = tf.reduce_any(value == [2, 3, 6, 7])
    return tf.reverse(image, tf.boolean_mask([0, 1], tf.stack([rows, columns])))


def _starts(head, text):
    return tf.reduce_all(head[: len(text)] == list(text))


def _part(contents, at, count):
    """Up to `count` bytes; none from the end on, where `tf.strings.substr` fails."""
    at = tf.minimum(tf.cast(at, tf.int64), tf.cast(tf.strings.length(contents), tf.int64))
    return tf.strings.substr(contents, at, count)


def _bytes(contents, at, count):
    """(count,) int64, with zeros where there are no such bytes."""
    count = tf.cast(count, tf.int64)
    found = tf.io.decode_raw(_part(contents, at, count), tf.uint8)
    return tf.cast(tf.pad(found, [[0, count - tf.size(found, tf.int64)]]), tf.int64)


def _number(digits, big_endian):
    """The number of the bytes of the last axis."""
    places = tf.range(tf.shape(digits, tf.int64)[-1])
    places = tf.where(big_endian, places[::-1], places)
    return tf.reduce_sum(tf.bitwise.left_shift(digits, 8 * places), axis=-1)
