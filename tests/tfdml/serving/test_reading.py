"""Batches with images that are bad, each in its own way, beside good ones."""

import struct

import numpy as np
import pytest
import tensorflow as tf
from image_contents import ANIMATED_WEBP, NOISE, WHOLE, claiming, encode
from PIL import Image

from pipelines import Reader
from tfdml.images.image_files import MAX_PIXELS
from tfdml.serving.bad_images import reasons
from tfdml.serving.reading import read_batch, reject_unreadable

SIZE = (6, 5, 3)
DAMAGED = "is damaged, cut off, or of a kind that cannot be read"
NO_IMAGE = "is not a JPEG, PNG, GIF, BMP or WebP"


def reading(max_pixels):
    """A function that reads a batch of images of at most so many pixels."""

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string)])
    def read(image_bytes):
        return read_batch(image_bytes, Reader(SIZE), SIZE, max_pixels)

    return lambda contents: [part.numpy() for part in read(tf.constant(contents, tf.string))]


read, read_large, read_strictly = map(reading, (40 * 30, MAX_PIXELS, 40 * 30 - 1))


def test_reads_images_of_all_formats_and_sizes_as_they_are_read_alone():
    contents = [
        *WHOLE.values(),
        encode(NOISE.resize((7, 3)), "PNG"),
        encode(NOISE.crop((0, 0, 1, 1)), "JPEG"),
    ]
    images, problems = read(contents * 3)
    assert not any(problems)
    expected = np.stack([Reader(SIZE)(each) for each in contents])
    assert np.ptp(expected) > 50
    np.testing.assert_array_equal(images, np.concatenate([expected] * 3))


def test_says_of_every_bad_image_why_and_reads_the_others():
    bad = {
        b"": "is empty",
        b"\0": NO_IMAGE,
        b"text": NO_IMAGE,
        encode(NOISE, "TIFF"): NO_IMAGE,
        b"RIFF....WAVEfmt ": NO_IMAGE,
        **{contents[:-20]: DAMAGED for contents in WHOLE.values()},
        **{contents[: len(contents) // 2]: DAMAGED for contents in WHOLE.values()},
        WHOLE["jpeg"][:20]: DAMAGED,
        b"\xff\xd8\xff": DAMAGED,
        ANIMATED_WEBP: DAMAGED,
        encode(NOISE.resize((31, 40)), "PNG"): "has 31 x 40 pixels, more than the limit of 1,200",
        encode(NOISE.resize((30, 41)), "JPEG"): "has 30 x 41 pixels, more than the limit of 1,200",
    }
    good = WHOLE["png"]
    batch = [content for each in bad for content in (good, each)] + [good]
    images, problems = read(batch)
    assert [text.decode() for text in problems[1::2]] == list(bad.values())
    assert not any(problems[::2])
    np.testing.assert_array_equal(images[::2], np.stack([Reader(SIZE)(good)] * (len(bad) + 1)))
    assert not images[1::2].any()


@pytest.mark.parametrize("batch", [[], [b"no image"], [b"no image"] * 40])
def test_a_batch_may_hold_nothing_to_read(batch):
    images, problems = read(batch)
    assert images.shape == (len(batch), *SIZE)
    assert all(problems)


HUGE = [
    *((name, 60_000, 60_000) for name in ("jpeg", "png", "gif", "bmp")),
    *((name, 16_000, 16_000) for name in ("webp", "webp lossless", "webp rgba")),
    ("png", 2**31 - 1, 2**31 - 1),
    ("bmp", 2**31 - 1, 2**31),
    ("bmp", 60_000, -60_000),  # rows from above
]


def test_a_header_that_claims_too_many_pixels_is_not_decoded():
    problems = read_large([claiming(*huge) for huge in HUGE])[1]
    for (name, width, height), problem in zip(HUGE, problems, strict=True):
        said = f"has {width} x {abs(height)} pixels, more than the limit of 178,956,970"
        assert problem.decode() == said, name


def gif(*sides, screen=(1, 1), comment=b""):
    """A GIF of pictures of one colour, with local palettes and perhaps a comment before each."""
    file = b"GIF89a" + struct.pack("<HHBBB", *screen, 0x80, 0, 0) + bytes(6)
    for width, height in sides:
        if comment:
            file += b"!\xfe" + bytes([len(comment)]) + comment + b"\0"
        whole = encode(Image.new("L", (width, height)), "GIF")
        picture = whole[whole.index(b",") : -1]
        assert not picture[9] & 0x80
        file += picture[:9] + b"\x80" + bytes(6) + picture[10:]
    return file + b";"


def test_the_pictures_of_a_gif_count_together_and_not_its_screen():
    fitting = {
        "one": gif((30, 40)),
        "several": gif((10, 40), (30, 20), (10, 20), comment=b",,,,,,,!!"),
        "last": gif((1, 1), (11, 109)),
        "screen": WHOLE["gif"],
    }
    images, problems = read(list(fitting.values()))
    assert not any(problems), problems
    expected = [Reader(SIZE)(contents) for contents in fitting.values()]
    np.testing.assert_array_equal(images, np.stack(expected))
    problems = read_strictly(list(fitting.values()))[1]
    said = "has pictures of 1200 pixels, more than the limit of 1,199"
    assert [text.decode() for text in problems[:3]] == [said] * 3
    assert problems[3].startswith(b"has 30 x 40 pixels")


def test_a_gif_may_be_cut_off_anywhere():
    whole = gif((10, 40), (30, 20), (10, 20), comment=b"comment")
    cut = [whole[:length] for length in range(len(whole))]
    for problem in read(cut)[1].astype(str):
        assert problem in ("", "is empty", DAMAGED, NO_IMAGE)


def test_the_size_of_every_format_is_read_right():
    # 30 x 40 pixels pass where 1,200 are taken, and none does where 1,199 are.
    for problem in read_strictly(list(WHOLE.values()))[1]:
        assert problem == b"has 30 x 40 pixels, more than the limit of 1,199"


@tf.function
def reject(problems):
    with tf.control_dependencies([reject_unreadable(problems, "image_bytes_b")]):
        return tf.size(problems)


@pytest.mark.parametrize("problem", ["is empty", NO_IMAGE])
def test_an_error_names_the_rows_and_what_is_wrong_with_them(problem):
    assert reject(tf.constant(["", ""])) == 2
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        reject(tf.constant([problem, "", *[problem] * 20]))
    found = reasons(error.value.message, "image_bytes_b")
    assert found == dict.fromkeys((0, *range(2, 11)), f"it {problem}")
    for name in ("image_bytes_a", "bytes_b"):
        assert reasons(error.value.message, name) == {}
