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
    balanced_batches,
    batches,
    evaluation_batches,
)
from pipelines.transforms import random_crop, trim_white, views

SIZE = (12, 12, 3)
MEAN = np.random.default_rng(1).uniform(80, 160, (16, 16, 3))
OPTIONS = {
    "nothing": {},
    "warp": {"warp_size": 16},
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
    [({}, 16), ({"keep_aspect": True}, 18), ({"mean_image": MEAN}, 16)],
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


def test_a_random_part_of_an_image_whose_aspect_is_kept_has_the_shape_of_the_crop(rng):
    image = np.arange(60 * 200, dtype=np.int32).reshape(60, 200, 1)
    shapes = []
    for draws in rng.uniform(size=(60, 4)).astype(np.float32):
        augmentation = Augmentation(crop=0.1, aspect=4 / 3)
        part = random_crop(tf.constant(image), augmentation, draws, 1.0).numpy()
        top, left = divmod(int(part[0, 0, 0]), 200)
        height, width = part.shape[:2]
        np.testing.assert_array_equal(
            part[:, :, 0], image[top : top + height, left : left + width, 0]
        )
        assert 3 / 4 * 0.95 <= width / height <= 4 / 3 * 1.05
        shapes.append(height * width / (60 * 200))
    assert min(shapes) < 0.2
    assert max(shapes) > 0.3  # 60 x 60 x 4 / 3 is the most that fits, 0.4


def test_a_crop_of_the_augmentation_takes_the_place_of_that_of_the_warp(rng):
    images = Split(rng.integers(0, 256, (4, 18, 15, 3), dtype=np.uint8), [0, 0, 1, 1])
    options = {"image_size": SIZE, "augmentation": Augmentation(crop=0.5)}
    plain, warped = (
        next(balanced_batches(images, 2, 2, **options, preprocessing=each).as_numpy_iterator())
        for each in (None, Preprocessing(warp_size=16))
    )
    np.testing.assert_array_equal(plain[0], warped[0])


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
    split = Split([str(tmp_path / "a.png")], [0], boxes=[[2, 2, 48, 48]])
    preprocessing = Preprocessing(trim_white=True)
    found = next(iter(evaluation_batches(split, (36, 36, 3), preprocessing=preprocessing)))
    np.testing.assert_array_equal(found[0], image[10:46, 10:46])


@pytest.mark.parametrize(
    ("options", "side"),
    [({"warp_size": 20, "keep_aspect": True}, 20), ({}, 16)],
)
def test_the_middle_of_several_crops_is_the_one_that_is_served(options, side, photos):
    size, preprocessing = (14, 14, 3), Preprocessing(**options)
    assert preprocessing.size_of_views(size) == (side, side, 3)
    assert Preprocessing().size_of_views((224, 192, 1)) == (256, 219, 1)
    if options:
        wholes, middles = (
            next(iter(evaluation_batches(photos, shape, preprocessing=preprocessing)))
            for shape in (preprocessing.size_of_views(size), size)
        )
        np.testing.assert_array_equal(views(wholes, size, crops=5)[4], middles)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"warp_size": 0}, ValueError, "`warp_size` must be >= 1. Received: warp_size=0"),
        ({"warp_size": 8.0}, TypeError, "`warp_size` must be an integer. Received: warp_size=8.0"),
        ({"warp_size": True}, TypeError, "`warp_size` must be an integer"),
        ({"keep_aspect": 1}, TypeError, "`keep_aspect` must be true or false. Received: keep_asp"),
        ({"trim_white": "no"}, TypeError, "`trim_white` must be true or false"),
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
def test_batches_reject_sizes_that_do_not_fit(options, augmentation, message, photos):
    making = {"augmentation": Augmentation(**augmentation)}
    with pytest.raises(ValueError, match=re.escape(message)):
        balanced_batches(photos, 2, 2, 0, SIZE, **making, preprocessing=Preprocessing(**options))
    if not augmentation:
        for reject in (Reader, lambda *a: evaluation_batches(photos, a[0], preprocessing=a[1])):
            with pytest.raises(ValueError, match=re.escape(message)):
                reject(SIZE, Preprocessing(**options))
