import itertools
import time

import numpy as np
import pytest

from pipelines.shuffled import shuffled_indices


def take(batches, *arguments, start=0, **options):
    dataset = shuffled_indices(*arguments, start_step=start, **options)
    return list(itertools.islice(dataset.as_numpy_iterator(), batches))


@pytest.mark.parametrize(("images", "size"), [(12, 4), (11, 4), (7, 7), (5, 1), (2, 2), (1, 1)])
def test_an_epoch_has_every_image_at_most_once_and_the_next_another_order(images, size):
    per_epoch = images // size
    batches = np.array(take(4 * per_epoch, images, size))
    epochs = batches.reshape(4, per_epoch * size)
    for epoch in epochs:
        assert len(set(epoch)) == per_epoch * size
        assert set(epoch) <= set(range(images))
    if images > 4:
        assert len({tuple(epoch) for epoch in epochs}) == 4


def test_images_that_an_epoch_leaves_out_come_in_others():
    drawn = np.bincount(np.ravel(take(3 * 500, 10, 3)), minlength=10)
    # 500 draws with odds of 0.9: a deviation of 6.7.
    assert abs(drawn - 450).max() < 4 * 6.7


def test_starting_at_a_step_equals_skipping_to_it():
    np.testing.assert_array_equal(take(10, 11, 4)[7:], take(3, 11, 4, start=7))


def test_the_seed_decides_the_batches():
    one, same, other = (np.array(take(5, 20, 4, seed=seed)) for seed in (2**63 - 1, 2**63 - 1, 3))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


def test_shapes_are_static():
    spec = shuffled_indices(5, 3).element_spec
    assert (spec.shape, spec.dtype.name) == ((3,), "int64")


def test_many_images_start_at_once_at_any_step():
    for start in (0, 10_000_000):
        began = time.perf_counter()
        take(1, 60_000, 128, start=start)
        assert time.perf_counter() - began < 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 5}, r"number of images\. Received: batch_size=5, images=4"),
        ({"batch_size": 0}, r"`batch_size` must be >= 1\. Received: batch_size=0"),
        ({"start_step": -1}, r"`start_step` must be >= 0\. Received: start_step=-1"),
        ({"seed": 2**63}, r"`seed` must be < 2\*\*63\. Received: seed=9223372036854775808"),
    ],
)
def test_rejects_what_cannot_be_drawn(options, message):
    with pytest.raises(ValueError, match=message):
        shuffled_indices(4, **{"batch_size": 2, **options})


@pytest.mark.parametrize("name", ["batch_size", "seed", "start_step"])
def test_rejects_what_is_no_integer(name):
    with pytest.raises(TypeError, match=f"`{name}` must be an integer. Received: {name}=2.0"):
        shuffled_indices(4, **{"batch_size": 2, name: 2.0})
