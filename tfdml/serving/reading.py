"""Reads batches of encoded images, some perhaps unreadable, in TensorFlow operations."""

import functools

import tensorflow as tf

from tfdml.images.decoding import first_bytes, little_endian, starts

_PARALLEL = 16  # images decoded at once, by as many threads as the process has
_SHOWN = 10  # images that an error names
_DAMAGED = "is damaged, cut off, or of a kind that cannot be read"


def read_batch(image_bytes, read_image, image_shape, max_pixels):
    """The images of a batch, zeros for unreadable ones, and (n,) texts, why they are or "".

    The header is checked first: a file of a few bytes may claim more pixels than fit in memory.
    TensorFlow has no operation that catches an error, but a dataset can skip elements with errors:
    each image is an element with its row number.
    """
    rows = tf.size(image_bytes, tf.int64)

    def attempt(row, contents):
        problem = _problem_of_header(contents, max_pixels)
        readable = tf.equal(problem, "")
        image = tf.cond(readable, lambda: read_image(contents), lambda: tf.zeros(image_shape))
        return row, tf.ensure_shape(image, image_shape), problem

    # One extra element, as an empty batch would be an error.
    last = tf.data.Dataset.from_tensors((rows, tf.zeros(image_shape), ""))
    dataset = tf.data.Dataset.from_tensor_slices((tf.range(rows), image_bytes))
    dataset = dataset.map(attempt, num_parallel_calls=_PARALLEL, deterministic=False)
    dataset = dataset.ignore_errors().concatenate(last).batch(rows + 1).with_options(_plain())
    read, images, problems = dataset.get_single_element()
    images = tf.scatter_nd(read[:, None], images, [rows + 1, *image_shape])
    damaged = tf.fill([rows + 1], _DAMAGED)
    problems = tf.tensor_scatter_nd_update(damaged, read[:, None], problems)
    return images[:rows], problems[:rows]


def reject_unreadable(problems, name):
    """Returns an operation that fails if one of the (n,) problems of an input is not ""."""
    rows = tf.where(tf.not_equal(problems, ""))[:, 0]
    shown = rows[:_SHOWN]
    words = [f"{name}[", tf.strings.as_string(shown), "] ", tf.gather(problems, shown)]
    sentence = tf.strings.reduce_join(tf.strings.join(words), separator="; ")
    return tf.debugging.Assert(tf.equal(tf.size(rows), 0), [sentence])


def _plain():
    """Options without optimizations that only pay off over many batches: each request has one."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    return options


def _problem_of_header(contents, max_pixels):
    """The problem of a header, "" if there is none; may fail for a JPEG."""
    header = tf.cast(first_bytes(contents), tf.int64)
    is_jpeg = tf.io.is_jpeg(contents)
    known, size = _size_in_header(header)
    size = tf.cond(is_jpeg, lambda: tf.io.extract_jpeg_shape(contents, tf.int64)[:2], lambda: size)
    height, width = tf.unstack(tf.strings.as_string(size))
    is_gif = starts(header, b"GIF8")
    gif_pixels = tf.cond(is_gif, lambda: _pixels_of_gif(contents), lambda: tf.constant(0, tf.int64))
    limit = f" pixels, more than the limit of {max_pixels:,}"
    pictures = tf.strings.join(["has pictures of ", tf.strings.as_string(gif_pixels), limit])
    problem = tf.where(gif_pixels > max_pixels, pictures, "")
    too_large = size[0] > max_pixels // tf.maximum(size[1], 1)  # the product may overflow
    problem = tf.where(too_large, tf.strings.join(["has ", width, " x ", height, limit]), problem)
    problem = tf.where(is_jpeg | known, problem, "is not a JPEG, PNG, GIF, BMP or WebP")
    return tf.where(tf.equal(tf.strings.length(contents), 0), "is empty", problem)


def _size_in_header(header):
    """Whether the header is of PNG, GIF, BMP or WebP, and its (2,) height and width."""

    number = functools.partial(little_endian, header)

    def big_endian(at):
        return tf.reduce_sum(header[at : at + 4] * [256**3, 256**2, 256, 1])

    webp = starts(header, b"RIFF") & starts(header, b"WEBP", at=8)
    rows = number(22, 4)  # of a BMP; negative if stored top-down
    packed = number(21, 4)  # of a lossless WebP: twice 14 bits, each 1 less than a side
    formats = [
        (starts(header, b"\x89PNG\r\n\x1a\n"), big_endian(20), big_endian(16)),
        (starts(header, b"GIF8"), number(8, 2), number(6, 2)),
        (starts(header, b"BM"), tf.minimum(rows, 2**32 - rows), number(18, 4)),
        (webp & starts(header, b"VP8 ", at=12), number(28, 2) % 2**14, number(26, 2) % 2**14),
        (webp & starts(header, b"VP8L", at=12), packed // 2**14 % 2**14 + 1, packed % 2**14 + 1),
        (webp & starts(header, b"VP8X", at=12), number(27, 3) + 1, number(24, 3) + 1),
    ]
    kinds, heights, widths = (tf.stack(column) for column in zip(*formats, strict=True))
    kind = tf.argmax(tf.cast(kinds, tf.int32))
    return tf.reduce_any(kinds), tf.stack([heights[kind], widths[kind]])


def _pixels_of_gif(contents):
    """The pixels of all pictures of a GIF, which may be larger than the screen in its header."""
    end = tf.strings.length(contents)
    data = tf.pad(tf.io.decode_raw(contents, tf.uint8), [[0, 1]])  # zero: no block, no sub-block

    def byte(at):
        return tf.cast(tf.gather(data, tf.minimum(at, end)), tf.int32)

    def side(at):
        return tf.cast(byte(at) + 256 * byte(at + 1), tf.int64)

    def colours(at):
        """Bytes of the colour table that a byte of flags announces."""
        flags = byte(at)
        return tf.where(flags >= 128, 6 * 2 ** (flags % 8), 0)

    def is_block(at, pixels):
        return (byte(at) == ord(",")) | (byte(at) == ord("!"))

    def after(at, pixels):
        is_picture = byte(at) == ord(",")
        size = side(at + 5) * side(at + 7)
        at = tf.where(is_picture, at + 11 + colours(at + 9), at + 2)
        [at] = tf.while_loop(lambda at: byte(at) > 0, lambda at: (at + 1 + byte(at),), (at,))
        return at + 1, pixels + tf.where(is_picture, size, 0)

    start = 13 + colours(10)
    return tf.while_loop(is_block, after, (start, tf.constant(0, tf.int64)))[1]
