"""Batches with images that are bad, each in its own way, beside good ones."""

import io
import struct

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from pipelines import Reader
from tfdml.serving.reading import MAX_PIXELS, read_batch, reject_unreadable

SIZE = (6, 5, 3)
DAMAGED = "is damaged, cut off, or of a kind that cannot be read"
NOISE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 30, 3), dtype=np.uint8))
TRANSLUCENT = Image.merge("RGBA", (*NOISE.split(), NOISE.getchannel(0)))


@tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string)])
def read(image_bytes):
    return read_batch(image_bytes, Reader(SIZE), SIZE, max_pixels=40 * 30)


@tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string)])
def read_large(image_bytes):
    return read_batch(image_bytes, Reader(SIZE), SIZE)


@tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string)])
def read_strictly(image_bytes):
    return read_batch(image_bytes, Reader(SIZE), SIZE, max_pixels=40 * 30 - 1)


def encode(kind, image=NOISE, **options):
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


GOOD = {
    "jpeg": encode("JPEG"),
    "jpeg progressive": encode("JPEG", progressive=True),
    "png": encode("PNG"),
    "gif": encode("GIF"),
    "bmp": encode("BMP"),
    "bmp palette": encode("BMP", NOISE.quantize(9)),
    "webp": encode("WEBP"),
    "webp lossless": encode("WEBP", lossless=True),
    "webp rgba": encode("WEBP", TRANSLUCENT),
}


def claiming(name, layout, at, *values):
    """The bytes of a good image with other numbers in its header."""
    contents = bytearray(GOOD[name])
    struct.pack_into(layout, contents, at, *values)
    return bytes(contents)


def test_reads_images_of_all_formats_and_sizes_as_they_are_read_alone():
    contents = [
        *GOOD.values(),
        encode("PNG", NOISE.resize((7, 3))),
        encode("JPEG", NOISE.crop((0, 0, 1, 1))),
    ]
    images, problems = read(tf.constant(contents * 3))
    assert not any(problems.numpy())
    expected = np.stack([Reader(SIZE)(each) for each in contents])
    assert np.ptp(expected) > 50
    np.testing.assert_array_equal(images, np.concatenate([expected] * 3))


def test_says_of_every_bad_image_why_and_reads_the_others():
    bad = {
        b"": "is empty",
        b"\0": "is not a JPEG, PNG, GIF, BMP or WebP",
        b"text": "is not a JPEG, PNG, GIF, BMP or WebP",
        encode("TIFF"): "is not a JPEG, PNG, GIF, BMP or WebP",
        b"RIFF....WAVEfmt ": "is not a JPEG, PNG, GIF, BMP or WebP",
        **{contents[:-20]: DAMAGED for contents in GOOD.values()},
        **{contents[: len(contents) // 2]: DAMAGED for contents in GOOD.values()},
        GOOD["jpeg"][:20]: DAMAGED,
        b"\xff\xd8\xff": DAMAGED,
        encode("WEBP", save_all=True, append_images=[NOISE.rotate(180)]): DAMAGED,
        encode("PNG", NOISE.resize((31, 40))): "has 31 x 40 pixels, more than the limit of 1,200",
        encode("JPEG", NOISE.resize((30, 41))): "has 30 x 41 pixels, more than the limit of 1,200",
    }
    good = GOOD["png"]
    batch = [content for each in bad for content in (good, each)] + [good]
    images, problems = (part.numpy() for part in read(tf.constant(batch)))
    assert [text.decode() for text in problems[1::2]] == list(bad.values())
    assert not any(problems[::2])
    np.testing.assert_array_equal(images[::2], np.stack([Reader(SIZE)(good)] * (len(bad) + 1)))
    assert not images[1::2].any()


@pytest.mark.parametrize("batch", [[], [b"no image"], [b"no image"] * 40])
def test_a_batch_may_hold_nothing_to_read(batch):
    images, problems = read(tf.constant(batch, tf.string))
    assert images.shape == (len(batch), *SIZE)
    assert all(problems.numpy())


HUGE = {
    "png": claiming("png", ">II", 16, 60_000, 60_000),
    "png at its most": claiming("png", ">II", 16, 2**31 - 1, 2**31 - 1),
    "gif": claiming("gif", "<HH", 6, 60_000, 60_000),
    "bmp": claiming("bmp", "<ii", 18, 60_000, 60_000),
    "bmp from above": claiming("bmp", "<ii", 18, 60_000, -60_000),
    "bmp at its most": claiming("bmp", "<II", 18, 2**31 - 1, 2**31),
    "webp": claiming("webp", "<HH", 26, 16_000, 16_000),
    "webp lossless": claiming("webp lossless", "<I", 21, 15_999 << 14 | 15_999),
    "webp rgba": claiming("webp rgba", "<HBHB", 24, 15_999, 0, 15_999, 0),
    "jpeg": GOOD["jpeg"].replace(struct.pack(">HH", 40, 30), struct.pack(">HH", 60_000, 60_000)),
}


def test_a_header_that_claims_too_many_pixels_is_not_decoded():
    problems = read_large(tf.constant(list(HUGE.values())))[1]
    for name, problem in zip(HUGE, problems.numpy(), strict=True):
        sides = (
            problem.decode()
            .removeprefix("has ")
            .partition(" pixels, more than the limit of 178,956,970")[0]
        )
        width, height = map(int, sides.split(" x "))
        assert height * width > MAX_PIXELS, name
        assert (width, height) in {
            (60_000,) * 2,
            (16_000,) * 2,
            (2**31 - 1,) * 2,
            (2**31 - 1, 2**31),
        }


def gif(*sides, screen=(1, 1), comment=b""):
    """A GIF of pictures of one colour, with local palettes and perhaps a comment before each."""
    file = b"GIF89a" + struct.pack("<HHBBB", *screen, 0x80, 0, 0) + bytes(6)
    for width, height in sides:
        if comment:
            file += b"!\xfe" + bytes([len(comment)]) + comment + b"\0"
        whole = encode("GIF", Image.new("L", (width, height)))
        picture = whole[whole.index(b",") : -1]
        assert not picture[9] & 0x80
        file += picture[:9] + b"\x80" + bytes(6) + picture[10:]
    return file + b";"


def test_the_pictures_of_a_gif_count_together_and_not_its_screen():
    fitting = {
        "one": gif((30, 40)),
        "several": gif((10, 40), (30, 20), (10, 20), comment=b",,,,,,,!!"),
        "last": gif((1, 1), (11, 109)),
        "screen": encode("GIF"),
    }
    images, problems = read(tf.constant(list(fitting.values())))
    assert not any(problems.numpy()), problems
    expected = [Reader(SIZE)(contents) for contents in fitting.values()]
    np.testing.assert_array_equal(images, np.stack(expected))
    problems = read_strictly(tf.constant(list(fitting.values())))[1].numpy()
    said = "has pictures of 1200 pixels, more than the limit of 1,199"
    assert [text.decode() for text in problems[:3]] == [said] * 3
    assert problems[3].startswith(b"has 30 x 40 pixels")


def test_a_gif_may_be_cut_off_anywhere():
    whole = gif((10, 40), (30, 20), (10, 20), comment=b"comment")
    cut = [whole[:length] for length in range(len(whole))]
    for problem in read(tf.constant(cut))[1].numpy().astype(str):
        assert problem in ("", "is empty", DAMAGED, "is not a JPEG, PNG, GIF, BMP or WebP")


def test_the_size_of_every_format_is_read_right():
    # 30 x 40 pixels pass where 1,200 are taken, and none does where 1,199 are.
    assert not any(read(tf.constant(list(GOOD.values())))[1].numpy())
    problems = read_strictly(tf.constant(list(GOOD.values())))[1]
    for problem in problems.numpy():
        assert problem == b"has 30 x 40 pixels, more than the limit of 1,199"


def test_an_error_names_the_rows_and_what_is_wrong_with_them():
    reject_unreadable(tf.constant(["", ""]), "image_bytes")
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"x\[1\] is empty; x\[3\] is damaged"
    ) as error:
        reject_unreadable(tf.constant(["", "is empty", "", *["is damaged"] * 20]), "x")
    assert "x[11]" in error.value.message
    assert "x[12]" not in error.value.message
