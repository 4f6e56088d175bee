import numpy as np
import pytest
import tensorflow as tf

from pipelines import Augmentation
from pipelines.transforms import (
    random_colour,
    random_crop,
    random_flip,
    random_symmetry,
    random_warp,
    resize,
    views,
)


def test_resize_keeps_an_image_whose_size_is_known_only_when_it_comes(rng):
    image = rng.integers(0, 256, (8, 9, 3), dtype=np.uint8)
    by_size = tf.function(
        lambda image: resize(image, (8, 9, 3)), [tf.TensorSpec([None, None, 3], tf.uint8)]
    )
    np.testing.assert_array_equal(by_size(image), image)
    other = rng.integers(0, 256, (9, 8, 3), dtype=np.uint8)
    np.testing.assert_array_equal(by_size(other), resize(other, (8, 9, 3)))


@pytest.mark.parametrize("shape", [None, 1.0])
def test_a_crop_is_a_part_of_the_image_of_the_area_and_shape_asked_for(shape, rng):
    image, areas = np.arange(60 * 200, dtype=np.int32).reshape(60, 200, 1), []
    augmentation = Augmentation(crop=0.1, aspect=4 / 3)
    for draws in rng.uniform(size=(60, 4)).astype(np.float32):
        part = random_crop(tf.constant(image), augmentation, draws, shape).numpy()
        top, left = divmod(int(part[0, 0, 0]), 200)
        height, width = part.shape[:2]
        np.testing.assert_array_equal(part, image[top : top + height, left : left + width])
        # Each side is rounded to whole pixels.
        assert (height + 0.5) * (width + 0.5) >= 0.1 * image.size
        assert 3 / 4 * 0.95 <= width / height / (shape or 200 / 60) <= 4 / 3 * 1.05
        areas.append(part.size / image.size)
    assert min(areas) < 0.2
    assert max(areas) > 0.3  # 60 x 60 x 4 / 3 is the most of shape 1 that fits, 0.4


def test_crops_cover_the_image_to_its_edges(rng):
    image = np.arange(10 * 10, dtype=np.int32).reshape(10, 10, 1)
    draws = rng.uniform(size=(200, 4)).astype(np.float32)
    parts = [random_crop(tf.constant(image), Augmentation(crop=0.2), row) for row in draws]
    assert set(np.concatenate([part.numpy().ravel() for part in parts])) == set(range(100))


def draw(**values):
    """One row of draws for `random_warp`; 0.5 is the middle of a range: no change."""
    order = {"flip": 0.9, "rotation": 0.5, "zoom": 0.5, "shift_x": 0.5, "shift_y": 0.5}
    return np.array([list({**order, **values}.values())], np.float32)


@pytest.fixture
def image(rng):
    return rng.uniform(0, 255, (1, 9, 9, 1)).astype(np.float32)


def test_the_middle_of_every_range_changes_nothing(image):
    warped = random_warp(image, Augmentation(rotation=30, zoom=0.3, shift=0.3), draw())
    np.testing.assert_allclose(warped, image, atol=1e-3)


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_one_image_and_a_batch_are_flipped_left_to_right_by_half_of_the_draws(kind, rng):
    image = rng.integers(0, 256, (5, 7, 3)).astype(kind)
    for value in (0.0, 0.49, 0.5, 0.9):
        flipped = random_flip(tf.constant(image), Augmentation(flip=True), tf.constant(value))
        np.testing.assert_array_equal(flipped, image[:, ::-1] if value < 0.5 else image)
        assert flipped.dtype == kind
        batch = random_warp(image[None], Augmentation(flip=True), draw(flip=value))
        np.testing.assert_array_equal(batch[0], flipped)
        assert random_flip(image, Augmentation(), value) is image
        assert random_warp(image, Augmentation(), draw(flip=value)) is image


@pytest.mark.parametrize("symmetries", [1, 4, 8])
def test_a_batch_is_turned_and_mirrored_as_a_whole(symmetries, rng):
    images = rng.uniform(0, 255, (3, 5, 5, 2)).astype(np.float32)
    augmentation = Augmentation(symmetries=symmetries)
    for number in range(symmetries):
        expected = images if number < 4 else images[:, :, ::-1]
        expected = np.rot90(expected, number % 4, axes=(1, 2))
        for draw in (number / symmetries, (number + 0.99) / symmetries):
            np.testing.assert_array_equal(random_symmetry(images, augmentation, draw), expected)


def test_a_quarter_turn_turns_about_the_centre(image):
    turned = random_warp(image, Augmentation(rotation=180), draw(rotation=0.75))
    quarter_turns = [np.rot90(image[0], k)[None] for k in (1, 3)]
    assert any(np.allclose(turned, expected, atol=1e-2) for expected in quarter_turns)


def test_a_shift_moves_by_the_share_of_the_side(image):
    # The draw 1 is the largest move: a third of 9 pixels.
    moved = random_warp(image, Augmentation(shift=1 / 3), draw(shift_x=1.0))
    np.testing.assert_allclose(moved[:, :, :6], image[:, :, 3:], atol=1e-2)


def test_a_zoom_enlarges_about_the_centre(image):
    # The draw 1 enlarges by 1 + zoom: what was 2 pixels from the centre is 3 pixels from it.
    zoomed = random_warp(image, Augmentation(zoom=0.5), draw(zoom=1.0)).numpy()
    np.testing.assert_allclose(zoomed[0, 1::3, 1::3], image[0, 2:7:2, 2:7:2], atol=1e-2)


def coloured(images, *draws, share=0.5):
    return random_colour(images, Augmentation(colour=share), np.float32([draws])).numpy()


def test_brightness_contrast_and_saturation_change_what_they_say(rng):
    images = rng.uniform(60, 120, (1, 4, 5, 3)).astype("float32")
    np.testing.assert_allclose(coloured(images, 0.5, 0.5, 0.5), images, atol=1e-3)
    grey = images @ np.float32([0.2989, 0.587, 0.114])
    np.testing.assert_allclose(coloured(images, 1, 0.5, 0.5), 1.5 * images, rtol=1e-4)
    pale = coloured(images, 0.5, 0.5, 0)
    np.testing.assert_allclose(pale, np.repeat(grey[..., None], 3, axis=3), rtol=1e-3)
    flat = coloured(images, 0.5, 0, 0.5)
    np.testing.assert_allclose(flat - grey.mean(), 0.5 * (images - grey.mean()), atol=0.05)


@pytest.mark.parametrize("channels", [1, 3])
def test_colours_stay_in_range_for_every_draw(channels, rng):
    images = rng.uniform(0, 255, (1, 4, 5, channels)).astype("float32")
    for draws in np.ndindex(2, 2, 2):
        changed = coloured(images, *draws)
        assert changed.shape == images.shape
        assert changed.min() >= 0
        assert changed.max() <= 255


@pytest.mark.parametrize(("crops", "mirror"), [(5, False), (5, True), (10, False)])
def test_crops_are_the_corners_and_the_centre(crops, mirror, rng):
    images = rng.normal(size=(3, 11, 13, 2)).astype("float32")
    places = [(0, 0), (0, 7), (3, 0), (3, 7), (1, 3)]
    expected = [images[:, top : top + 8, left : left + 6] for top, left in places]
    if mirror or crops == 10:
        expected += [part[:, :, ::-1] for part in expected]
    found = views(images, (8, 6, 2), crops=crops, mirror=mirror)
    np.testing.assert_array_equal(found, expected)


def test_a_single_crop_is_the_whole_image(rng):
    images = rng.normal(size=(2, 4, 5, 1)).astype("float32")
    (whole,) = views(images, (4, 5, 1))
    np.testing.assert_array_equal(whole, images)
    found = views(images, (4, 5, 1), mirror=True)
    np.testing.assert_array_equal(found, [images, images[:, :, ::-1]])
