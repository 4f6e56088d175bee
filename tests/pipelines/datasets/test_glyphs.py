import numpy as np
import pytest

import pipelines


@pytest.fixture(scope="module")
def glyphs():
    return pipelines.load("glyphs")


def test_has_about_two_thousand_classes_in_two_halves(glyphs):
    # Other releases of matplotlib ship other fonts.
    assert 1800 <= glyphs.train.num_classes + glyphs.test.num_classes <= 2400
    assert abs(glyphs.train.num_classes - glyphs.test.num_classes) <= 1
    assert set(glyphs.train.labels % 2) == {0}
    assert set(glyphs.test.labels % 2) == {1}
    for split in (glyphs.train, glyphs.test):
        faces = np.unique(split.labels, return_counts=True)[1]
        assert 12 <= faces.min() <= faces.max() <= 16


def test_no_image_is_in_two_classes(glyphs):
    label_of = {}
    for split in (glyphs.train, glyphs.test):
        for image, label in zip(split.images, split.labels, strict=True):
            assert label_of.setdefault(image.tobytes(), label) == label


def test_strokes_are_white_on_black_and_inside_the_frame(glyphs):
    images = glyphs.train.images
    assert images.shape[1:] == glyphs.image_size == (28, 28, 1)
    assert images.dtype == np.uint8
    edge = np.ones((28, 28), bool)
    edge[4:-4, 4:-4] = False
    assert not images[:, edge].any()
    assert (images.max(axis=(1, 2, 3)) > 100).all()
    assert images.mean() < 64


def test_characters_are_centred_and_of_one_size(glyphs):
    for image in glyphs.train.images[::50, :, :, 0]:
        rows, columns = np.flatnonzero(image.any(1)), np.flatnonzero(image.any(0))
        assert 19 <= max(np.ptp(rows), np.ptp(columns)) + 1 <= 20
        for inked in (rows, columns):
            assert abs(inked[0] + inked[-1] - 27) <= 2
