import warnings

import numpy as np
import pytest
import tensorflow as tf

from tfdml.serving.bounded_batches import InPieces, fitting_batch_size


def limited(most, sizes):
    """Doubles rows, at most so many at once; notes how many it got."""

    def double(rows):
        sizes.append(len(rows))
        if len(rows) > most:
            raise tf.errors.ResourceExhaustedError(None, None, "no memory")
        return 2 * rows

    return double


def test_goes_on_with_halves_where_the_memory_is_exhausted(rng):
    sizes, batch = [], rng.normal(size=(16, 3))
    in_pieces = InPieces(limited(5, sizes), 16)
    with pytest.warns(UserWarning, match="16 images .* 8$"):
        found = in_pieces(batch)
    np.testing.assert_array_equal(found, 2 * batch)
    assert sizes == [16, 8, 4, 4, 4, 4]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(in_pieces(batch[:7]), 2 * batch[:7])
    assert sizes[6:] == [4, 3]
    assert in_pieces.batch_size == 4


def test_a_row_that_does_not_fit_is_an_error():
    in_pieces = InPieces(limited(0, []), 4)
    with (
        pytest.warns(UserWarning, match="continuing with 1"),
        pytest.raises(tf.errors.ResourceExhaustedError),
    ):
        in_pieces(np.zeros((4, 2)))


def test_larger_images_come_in_smaller_batches():
    sizes = [fitting_batch_size((side, side, 3), 128) for side in (28, 112, 224, 448, 9000)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == sizes[1] == 256
    assert sizes[-1] == 1
    assert fitting_batch_size((28, 28, 1), 10**8) == 2
