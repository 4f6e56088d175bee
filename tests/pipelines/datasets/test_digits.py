import numpy as np
import pytest

import pipelines


def test_small_digits_train_and_large_ones_test():
    digits = pipelines.load("digits")
    assert set(digits.train.labels) == {0, 1, 2, 3, 4}
    assert set(digits.test.labels) == {5, 6, 7, 8, 9}
    assert len(digits.train.labels) + len(digits.test.labels) == 1797
    assert digits.train.images.shape[1:] == digits.image_size == (8, 8, 1)


def test_grey_levels_span_the_range():
    images = pipelines.load("digits").train.images
    assert images.dtype == np.uint8
    assert (images.min(), images.max()) == (0, 255)


def test_rejects_a_folder():
    with pytest.raises(
        ValueError, match=r"'digits' is built in: leave out `data_dir`. Received: data_dir='x'"
    ):
        pipelines.load("digits", data_dir="x")
