import re

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from pipelines import (
    Augmentation,
    Balanced,
    Preprocessing,
    Reader,
    Split,
    batches,
    evaluation_batches,
    read_mean_image,
)
from pipelines.transforms import trim_white, views

SIZE = (12, 12, 3)
MEAN = np.random.default_rng(1).uniform(80, 160, (16, 16, 3))
OPTIONS = {
    "nothing": {},
    "warp, aspect kept": {"warp_size": 16, "keep_aspect": True},
    "mean image": {"warp_size": 16, "mean_image": MEAN},
    "all that go together": {"warp_size": 16, "trim_white": True, "mean_image": MEAN},
}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """12 files of 6 classes, of several sizes, dark shapes on white, as JPEG and PNG."""
    rng = np.random.default_rng(0)
    folder, paths = tmp_path_factory.mktemp("photos"), []
    for index in range(12):
        height, width = rng.integers(14, 60, 2)
        image = np.full((height, width, 3), 255, np.uint8)
        top, left = rng.integers(0, height // 2), rng.integers(0, width // 2)
        coarse = Image.fromarray(rng.integers(0, 230, (4, 4, 3), dtype=np.uint8))
        part = np.asarray(coarse.resize((width // 2, height // 2), Image.Resampling.BICUBIC))
        image[top : top + height // 2, left : left + width // 2] = part
        paths.append(str(folder / f"{index}.{'jpg' if index % 2 else 'png'}"))
        Image.fromarray(image).save(paths[-1])
    return Split(np.array(paths), (np.arange(12) + 1) // 2 % 6)


def by_hand(path, preprocessing, size=SIZE):
    """The image that is scored, by Pillow's filter and loops over what the options say."""
    image = np.asarray(Image.open(path).convert("RGB"))
    target = preprocessing.warp_size or size[0]
    if preprocessing.trim_white:
        grey = image @ np.array([0.2989, 0.587, 0.114])
        rows, columns = np.nonzero(grey < 249.5)
        top, left = max(rows.min() - 15, 0), max(columns.min() - 15, 0)
        image = image[top : rows.max() + 17, left : columns.max() + 17]
    height, width = image.shape[:2]
    sides = np.array([target, target])
    if preprocessing.trim_white:
        sides = np.ceil(np.array([height, width]) * target / max(height, width)).astype(int)
    elif preprocessing.keep_aspect:
        exact = np.array([height, width]) * target / min(height, width)
        sides = np.floor(exact + 0.5).astype(int)
    planes = [
        Image.fromarray(plane).resize(tuple(sides[::-1].tolist()), Image.Resampling.BILINEAR)
        for plane in image.astype(np.float32).transpose(2, 0, 1)
    ]
    image = (
        np.rint(np.stack(planes, axis=-1)) if preprocessing.takes_crops else np.stack(planes, -1)
    )
    if preprocessing.trim_white:
        white = np.full((target, target, 3), 255.0)
        top, left = (target - sides) // 2
        white[top : top + sides[0], left : left + sides[1]] = image
        image = white
    if preprocessing.mean_image is not None:
        image = image - MEAN + MEAN.mean(axis=(0, 1))
    top, left = (np.array(image.shape[:2]) - size[:2]) // 2
    return image[top : top + size[0], left : left + size[1]]


@pytest.mark.parametrize("name", OPTIONS)
def test_scoring_and_serving_take_the_middle_of_what_the_options_say(name, photos):
    preprocessing = Preprocessing(**OPTIONS[name])
    batches = evaluation_batches(photos, SIZE, 7, preprocessing=preprocessing)
    scored = np.concatenate(list(batches.as_numpy_iterator()))
    assert scored.dtype == np.float32
    served = tf.function(Reader(SIZE, preprocessing), [tf.TensorSpec([], tf.string)])
    for path, image in zip(photos.images, scored, strict=True):
        np.testing.assert_array_equal(image, served(tf.io.read_file(path)))
        if path.endswith("png"):  # whose pixels Pillow and TensorFlow agree on
            # A level of 8 bits may fall to either side of a half.
            difference = np.abs(image - by_hand(path, preprocessing))
            assert difference.max() <= 1.001
            assert (difference > 1e-3).mean() < 0.02
    eager = Reader(SIZE, preprocessing)(tf.io.read_file(photos.images[0]))
    np.testing.assert_array_equal(eager, scored[0])


@pytest.mark.parametrize(
    ("options", "width"),
    [({"keep_aspect": True}, 18), ({"mean_image": MEAN}, 16)],
)
def test_training_takes_crops_at_every_place_of_what_is_scored(options, width, rng):
    image = rng.integers(0, 256, (16, width, 3), dtype=np.uint8)
    reader = Reader(SIZE, Preprocessing(warp_size=16, **options))
    found = batches(Split(np.stack([image, image]), [0, 0]), Balanced(1, 2), reader).take(200)
    whole = image - (MEAN - MEAN.mean(axis=(0, 1))) if "mean_image" in options else image
    parts = {
        (top, left): whole[top : top + 12, left : left + 12]
        for top in range(5)
        for left in range(width - 11)
    }
    places = [
        [place for place, part in parts.items() if np.allclose(part, crop, atol=1e-4)]
        for crops, _ in found.as_numpy_iterator()
        for crop in crops
    ]
    assert all(len(place) == 1 for place in places)
    assert {place for (place,) in places} == set(parts)


def test_a_crop_of_the_augmentation_takes_the_place_of_that_of_the_warp(rng):
    row = {"pixels": rng.integers(0, 256, (18, 15, 3), dtype=np.uint8)}
    draws = {name: each[0] for name, each in Reader().draws(0, 0, 1).items()}
    plain, warped = (
        Reader(SIZE, preprocessing, Augmentation(crop=0.5)).image(row, draws)
        for preprocessing in (None, Preprocessing(warp_size=16))
    )
    np.testing.assert_array_equal(plain, warped)


@pytest.mark.parametrize(
    ("box", "size", "expected"),
    [
        ((20, 30, 24, 33), (80, 90), (5, 15, 40, 49)),  # 15 before, 16 after
        ((3, 2, 5, 85), (80, 90), (0, 0, 21, 90)),
        ((0, 0, 0, 0), (80, 90), (0, 0, 80, 90)),  # white throughout
    ],
)
def test_what_stays_of_a_white_border_is_that_of_the_released_code(box, size, expected):
    width, height = size
    image = np.full((height, width, 3), 250, np.uint8)
    image[:, :, 1] += np.arange(width, dtype=np.uint8) % 5
    left, top, right, bottom = box
    image[top:bottom, left:right] = 249
    left, top, right, bottom = expected
    for part in (image, image[:, :, :1]):
        np.testing.assert_array_equal(trim_white(tf.constant(part)), part[top:bottom, left:right])


def test_a_box_is_cut_out_before_its_white_border(photos, tmp_path):
    image = np.full((60, 60, 3), 255, np.uint8)
    image[25:30, 25:30] = 0
    image[50:, 50:] = 100  # outside of the box
    Image.fromarray(image).save(tmp_path / "a.png")
    row = {"path": str(tmp_path / "a.png"), "box": [2, 2, 48, 48]}
    found = Reader((36, 36, 3), Preprocessing(trim_white=True)).image(row)
    np.testing.assert_array_equal(found, image[10:46, 10:46])


def test_the_middle_of_several_crops_is_the_one_that_is_served(photos):
    size, preprocessing = (14, 14, 3), Preprocessing(warp_size=20, keep_aspect=True)
    assert preprocessing.size_of_views(size) == (20, 20, 3)
    assert Preprocessing().size_of_views((224, 192, 1)) == (256, 219, 1)
    contents = tf.io.read_file(photos.images[0])
    whole, middle = (
        Reader(shape, preprocessing)(contents)
        for shape in (preprocessing.size_of_views(size), size)
    )
    np.testing.assert_array_equal(views(whole[None], size, crops=5)[4][0], middle)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"warp_size": 0}, ValueError, "`warp_size` must be >= 1. Received: warp_size=0"),
        ({"warp_size": 8.0}, TypeError, "`warp_size` must be an integer. Received: warp_size=8.0"),
        ({"keep_aspect": 1}, TypeError, "`keep_aspect` must be true or false. Received: keep_asp"),
        ({"keep_aspect": True, "trim_white": True}, ValueError, "leave out `keep_aspect`"),
        ({"keep_aspect": True, "mean_image": MEAN}, ValueError, "images of one size: leave out"),
        ({"mean_image": np.zeros((2, 2, 3), int)}, TypeError, "be floats. Received: dtype=int64"),
        ({"mean_image": MEAN[0]}, ValueError, r"all finite. Received: shape=\(16, 3\)"),
        ({"mean_image": MEAN * np.nan}, ValueError, "all finite"),
    ],
)
def test_rejects_what_does_not_go_together(options, error, message):
    with pytest.raises(error, match=message):
        Preprocessing(**options)


@pytest.mark.parametrize(
    ("options", "augmentation", "message"),
    [
        ({"warp_size": 11}, {}, "the side of a crop. Received: warp_size=11, image_size=(12, 12"),
        ({"mean_image": MEAN}, {}, "images before the crop, (12, 12, 3). Received: mean_image.sh"),
        ({"warp_size": 16, "mean_image": MEAN}, {"crop": 0.5}, "Received: crop=0.5, colour=0.0"),
        ({"warp_size": 16, "mean_image": MEAN}, {"colour": 0.1}, "Received: crop=1.0, colour=0.1"),
    ],
)
def test_a_reader_rejects_sizes_that_do_not_fit(options, augmentation, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Reader(SIZE, Preprocessing(**options), Augmentation(**augmentation))


def test_reads_an_array_of_numpy_as_it_is(rng, tmp_path):
    expected = rng.uniform(0, 255, (4, 5, 3))
    np.save(tmp_path / "mean.npy", expected)
    np.testing.assert_array_equal(read_mean_image(tmp_path / "mean.npy"), np.float32(expected))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("mean.npy", b"no array", "mean.npy cannot be read .the magic string is not correct"),
        ("mean.npy", b"PK of an archive", "mean.npy cannot be read"),
        ("mean.binaryproto", b"", r"convert_mean_image.py .*: mean_image=.*mean.binaryproto"),
    ],
)
def test_rejects_a_file_without_a_mean_image(name, content, message, tmp_path):
    with pytest.raises((FileNotFoundError, ValueError), match=f"There is no .*{name}|{message}"):
        read_mean_image(tmp_path / name)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_mean_image(tmp_path / name)


def test_changed_replaces_some_fields():
    changed = Augmentation(rotation=10.0, zoom=0.1).changed(rotation=0.0)
    assert changed == Augmentation(zoom=0.1)
    with pytest.raises(ValueError, match=r"no option 'rotatoin'. Did you mean 'rotation'?"):
        Augmentation().changed(rotatoin=3)


@pytest.mark.parametrize(
    ("name", "value", "range_"),
    [
        ("crop", 0.0, "> 0 and <= 1"),
        ("crop", 1.5, "> 0 and <= 1"),
        ("aspect", 0.5, ">= 1 and finite"),
        ("aspect", float("inf"), ">= 1 and finite"),
        ("flip", 3, "true or false"),
        ("symmetries", 2, "1, 4 or 8"),
        ("rotation", -1.0, ">= 0 and <= 180 degrees"),
        ("zoom", 1.0, ">= 0 and < 1"),
        ("shift", float("nan"), ">= 0 and < 1"),
        ("colour", 0.6, ">= 0 and <= 0.5"),
    ],
)
def test_rejects_values_out_of_range(name, value, range_):
    with pytest.raises(ValueError, match=f"`{name}` must be {range_}. Received: {name}={value}"):
        Augmentation(**{name: value})
