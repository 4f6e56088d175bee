import pytest

import pipelines


def test_small_digits_train_and_large_ones_test():
    digits = pipelines.load("digits")
    assert set(digits.train.labels) == {0, 1, 2, 3, 4}
    assert set(digits.test.labels) == {5, 6, 7, 8, 9}
    assert len(digits.train.labels) + len(digits.test.labels) == 1797
    assert digits.train.images.shape[1:] == digits.image_size == (8, 8, 1)
    assert (digits.train.images.min(), digits.train.images.max()) == (0, 255)


def test_what_is_built_in_takes_no_folder():
    message = "'digits' is built in: leave out `data_dir`. Received: data_dir='x'"
    with pytest.raises(ValueError, match=message):
        pipelines.load("digits", data_dir="x")
