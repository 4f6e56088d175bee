import numpy as np
import pytest

from pipelines.views import views


@pytest.mark.parametrize("shape", [(11, 13), (8, 6), (9, 6)])
@pytest.mark.parametrize(("crops", "mirror"), [(5, False), (5, True), (10, False), (10, True)])
def test_crops_are_those_of_a_loop(shape, crops, mirror, rng):
    images = rng.normal(size=(3, *shape, 2)).astype("float32")
    height, width = shape
    expected = []
    for flipped in (False, True) if mirror or crops == 10 else (False,):
        for top, left in (
            (0, 0),
            (0, width - 6),
            (height - 8, 0),
            (height - 8, width - 6),
            ((height - 8) // 2, (width - 6) // 2),
        ):
            part = np.empty((3, 8, 6, 2), "float32")
            for y in range(8):
                for x in range(6):
                    part[:, y, x] = images[:, top + y, left + (5 - x if flipped else x)]
            expected.append(part)
    found = views(images, (8, 6, 2), crops=crops, mirror=mirror)
    np.testing.assert_array_equal(found, expected)


def test_a_single_crop_is_the_whole_image(rng):
    images = rng.normal(size=(2, 4, 5, 1)).astype("float32")
    (whole,) = views(images, (4, 5, 1))
    np.testing.assert_array_equal(whole, images)
    found = views(images, (4, 5, 1), mirror=True)
    np.testing.assert_array_equal(found, [images, images[:, :, ::-1]])


@pytest.mark.parametrize(
    ("shape", "crops", "message"),
    [
        ((8, 8), 2, "`crops` must be 1, 5 or 10. Received: crops=2"),
        (
            (8, 8),
            1,
            r"must have the size of a view.*shape=\(1, 8, 8, 1\), image_size=\(7, 8",
        ),
        ((6, 8), 5, "must have the size of a view, or for several crops at least that"),
    ],
)
def test_rejects_views_that_cannot_be(shape, crops, message):
    with pytest.raises(ValueError, match=message):
        views(np.zeros((1, *shape, 1), "float32"), (7, 8, 1), crops=crops)
