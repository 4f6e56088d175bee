"""Batches of encoded images of which some may be unreadable, in operations of TensorFlow alone."""

import tensorflow as tf

from tfdml.serving.options import MAX_PIXELS

_HEADER = 32  # bytes in which the sizes of all formats stand but that of JPEG
_PARALLEL = 16  # images decoded at once, by as many threads as the process has
_SHOWN = 10  # images that an error names
_DAMAGED = "is damaged, cut off, or of a kind that cannot be read"


def read_batch(image_bytes, read_image, image_shape, max_pixels=MAX_PIXELS):
    """Reads what can be read of a batch, and says why the rest cannot.

    What a header tells is looked at before its image is decoded: that of a few bytes may claim
    pixels that no memory has. TensorFlow has no operation that catches an error, but a dataset can
    leave out elements with errors: each image is an element with its row, and the rows that are
    missing afterwards could not be read.

    Args:
        image_bytes: (n,) encoded images of any sizes, n >= 0.
        read_image: From a scalar string to one float32 image of `image_shape`.
        image_shape: (height, width, channels).
        max_pixels: Pixels of the largest image that is decoded. Of a GIF those of its screen
            count, which its frames should not exceed.

    Returns:
        `(images, problems)`: (n, height, width, channels) float32, with zeros for what cannot be
        read, and (n,) texts such as "is empty", "" for what is read.
    """
    rows = tf.size(image_bytes, tf.int64)

    def attempt(row, contents):
        problem = _problem_of_header(contents, max_pixels)
        image = tf.cond(
            tf.equal(problem, ""), lambda: read_image(contents), lambda: tf.zeros(image_shape)
        )
        return row, tf.ensure_shape(image, image_shape), problem

    # One element more than rows: a batch of none is an error.
    last = tf.data.Dataset.from_tensors((rows, tf.zeros(image_shape), ""))
    dataset = tf.data.Dataset.from_tensor_slices((tf.range(rows), image_bytes))
    dataset = dataset.map(attempt, num_parallel_calls=_PARALLEL, deterministic=False)
    dataset = dataset.ignore_errors().concatenate(last).batch(rows + 1).with_options(_plain())
    read, images, problems = dataset.get_single_element()
    images = tf.scatter_nd(read[:, None], images, [rows + 1, *image_shape])
    damaged = tf.fill([rows + 1], _DAMAGED)
    problems = tf.tensor_scatter_nd_update(damaged, read[:, None], problems)
    return images[:rows], problems[:rows]


def refuse_unreadable(problems, name):
    """An operation that fails if there is a problem, and names the rows that have one.

    Args:
        problems: (n,) texts, "" where there is none.
        name: Name of the input whose rows they are.
    """
    rows = tf.where(tf.not_equal(problems, ""))[:, 0]
    shown = rows[:_SHOWN]
    words = [f"{name}[", tf.strings.as_string(shown), "] ", tf.gather(problems, shown)]
    sentence = tf.strings.reduce_join(tf.strings.join(words), separator="; ")
    return tf.debugging.Assert(tf.equal(tf.size(rows), 0), [sentence])


def _plain():
    """Without what pays off over many batches alone: it would be done anew for each request."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    return options


def _problem_of_header(contents, max_pixels):
    """A text, "" if the header is well; may fail for a JPEG."""
    header = _first_bytes(contents)
    is_jpeg = tf.io.is_jpeg(contents)
    known, size = _size_in_header(header)
    size = tf.cond(is_jpeg, lambda: tf.io.extract_jpeg_shape(contents, tf.int64)[:2], lambda: size)
    height, width = tf.unstack(tf.strings.as_string(size))
    limit = f" pixels, more than the {max_pixels:,} that are taken"
    return tf.case(
        [
            (tf.equal(tf.strings.length(contents), 0), lambda: tf.constant("is empty")),
            (
                tf.logical_not(is_jpeg | known),
                lambda: tf.constant("is no JPEG, PNG, GIF, BMP or WebP"),
            ),
            # Divided, for the product may exceed an integer.
            (
                size[0] > max_pixels // tf.maximum(size[1], 1),
                lambda: tf.strings.join(["has ", width, " x ", height, limit]),
            ),
        ],
        default=lambda: tf.constant(""),
    )


def _size_in_header(header):
    """Whether the header is of PNG, GIF, BMP or WebP, and the (2,) height and width it tells."""

    def number(at, count, big_endian=False):
        digits = header[at : at + count]
        powers = [256**i for i in range(count)]
        return tf.reduce_sum(digits * (powers[::-1] if big_endian else powers))

    def starts(text, at=0):
        return tf.reduce_all(tf.equal(header[at : at + len(text)], list(text)))

    webp = starts(b"RIFF") & starts(b"WEBP", at=8)
    rows = number(22, 4)  # of a BMP; negative if they come from above
    packed = number(21, 4)  # of a lossless WebP: twice 14 bits, each 1 less than a side
    formats = [
        (
            starts(b"\x89PNG\r\n\x1a\n"),
            number(20, 4, big_endian=True),
            number(16, 4, big_endian=True),
        ),
        (starts(b"GIF8"), number(8, 2), number(6, 2)),
        (starts(b"BM"), tf.minimum(rows, 2**32 - rows), number(18, 4)),
        (webp & starts(b"VP8 ", at=12), number(28, 2) % 2**14, number(26, 2) % 2**14),
        (webp & starts(b"VP8L", at=12), packed // 2**14 % 2**14 + 1, packed % 2**14 + 1),
        (webp & starts(b"VP8X", at=12), number(27, 3) + 1, number(24, 3) + 1),
    ]
    kinds, heights, widths = (tf.stack(column) for column in zip(*formats, strict=True))
    kind = tf.argmax(tf.cast(kinds, tf.int32))
    return tf.reduce_any(kinds), tf.stack([heights[kind], widths[kind]])


def _first_bytes(contents):
    """(32,) int64, with zeros where the file is shorter."""
    first = tf.io.decode_raw(tf.strings.substr(contents, 0, _HEADER), tf.uint8)
    padded = tf.pad(tf.cast(first, tf.int64), [[0, _HEADER - tf.shape(first)[0]]])
    return tf.ensure_shape(padded, [_HEADER])
