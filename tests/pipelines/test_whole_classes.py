import itertools
import re
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.whole_classes import whole_class_indices


def take(batches, *arguments, start=0, **options):
    dataset = whole_class_indices(*arguments, start_step=start, **options)
    return list(itertools.islice(dataset.as_numpy_iterator(), batches))


def labels_of(counts):
    """Labels of classes of so many images, shuffled."""
    return np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))


def by_the_book(sizes, batch_size):
    """The images that each batch takes of each class, the classes in their order."""
    batches, batch = [], []
    for size in sizes:
        if batch_size - sum(batch) < 2:
            batches.append(batch)
            batch = []
        batch.append(min(size, batch_size - sum(batch)))
    return [*batches, batch]


@pytest.mark.parametrize("examples", [6, pytest.param(25, marks=pytest.mark.slow)])
def test_an_epoch_takes_whole_classes_until_each_batch_is_full(examples):
    @settings(max_examples=examples, deadline=None)
    @given(
        counts=st.lists(st.integers(1, 7), min_size=2, max_size=60).filter(
            lambda counts: sum(count > 1 for count in counts) > 1
        ),
        room=st.integers(2, 20),
        seed=st.integers(0, 2**40),
    )
    def check(counts, room, seed):
        labels, batch_size = labels_of(counts), max(counts) + room
        paired = [count for count in counts if count > 1]
        batches_per_epoch = max(1, sum(paired) // (batch_size - 2 + max(counts)))
        batches = take(2 * batches_per_epoch, labels, batch_size, seed=seed)
        for epoch in (batches[:batches_per_epoch], batches[batches_per_epoch:]):
            visited, taken = [], []
            for indices in epoch:
                assert len(set(indices)) == len(indices)
                begins = np.flatnonzero(np.diff(labels[indices], prepend=-1))
                visited += labels[indices][begins].tolist()
                taken.append(np.diff(np.append(begins, len(indices))).tolist())
            assert len(set(visited)) == len(visited)
            assert taken == by_the_book([counts[label] for label in visited], batch_size)
            assert min(map(len, taken)) >= 2
            if sum(paired) >= batch_size - 2 + max(counts):
                assert {len(indices) for indices in epoch} <= {batch_size, batch_size - 1}

    check()


@pytest.mark.parametrize(
    ("batch_size", "taken"), [(9, [3, 3, 3]), (10, [3, 3, 3]), (11, [3, 3, 3, 2])]
)
def test_a_class_that_does_not_fit_is_cut_to_two_images_or_more(batch_size, taken):
    labels = labels_of([3] * 40)
    for indices in take(20, labels, batch_size):
        begins = np.flatnonzero(np.diff(labels[indices], prepend=-1))
        assert np.diff(np.append(begins, len(indices))).tolist() == taken


def test_images_that_do_not_fill_a_batch_all_come():
    labels = labels_of([2, 1, 4])
    for indices in take(3, labels, 20):
        assert sorted(indices) == np.flatnonzero(labels != 1).tolist()


def test_class_ids_may_be_any_integers():
    labels = np.array([2**40, -7, 2**40 + 1, 2**40, -7, 2**40 + 1])
    for indices in take(5, labels, 4):
        assert len(set(labels[indices])) == 2
        assert len(set(indices)) == 4


def test_a_batch_of_online_products_has_19_classes_and_an_epoch_nearly_all():
    counts = np.random.default_rng(0).choice([2, 4, 6, 8, 12], 4000, p=[0.3, 0.2, 0.2, 0.25, 0.05])
    labels = labels_of(counts)  # 5.2 images a class
    epoch = counts.sum() // 110
    batches = take(epoch, labels, 100)
    classes = [len(set(labels[indices])) for indices in batches]
    assert 18 < np.mean(classes) < 21
    assert sum(classes) > 0.9 * len(counts)


def test_the_next_epoch_has_another_order_and_all_classes_come_in_time():
    labels = labels_of([2, 3, 4, 5, 6] * 4)
    batches = take(60, labels, 12)
    epoch = 80 // 16
    assert [set(labels[b]) for b in batches[:epoch]] != [
        set(labels[b]) for b in batches[epoch : 2 * epoch]
    ]
    assert set(np.concatenate(batches)) == set(range(80))


def test_every_image_is_as_likely_to_be_left_out():
    labels = labels_of([6] * 8)
    drawn = np.bincount(np.concatenate(take(2000, labels, 9)), minlength=48)
    # 2,000 draws of 9 of 48: mean 375, standard deviation below 17.5: 5 of them.
    np.testing.assert_allclose(drawn, 375, atol=88)


def test_starting_at_a_step_equals_skipping_to_it():
    labels = labels_of([2, 3, 4, 5] * 30)
    whole = take(80, labels, 20, seed=2)
    for start in (1, 23, 75):
        resumed = take(5, labels, 20, seed=2, start=start)
        for batch, expected in zip(resumed, whole[start : start + 5], strict=True):
            np.testing.assert_array_equal(batch, expected)


def test_the_seed_decides_the_batches():
    labels = labels_of([2, 3, 4, 5] * 30)
    first, again, other = (take(4, labels, 20, seed=seed) for seed in (1, 1, 2))
    assert [set(a) for a in first] == [set(b) for b in again]
    assert [set(a) for a in first] != [set(b) for b in other]
    assert take(1, [0, 0, 1, 1], 4, seed=2**63 - 1)


def test_many_classes_start_at_once_at_any_step():
    labels = np.repeat(np.arange(11_318), 5)
    for start in (0, 10_000_000):
        began = time.perf_counter()
        take(1, labels, 100, start=start)
        assert time.perf_counter() - began < 3


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"batch_size": 5},
            ValueError,
            "`batch_size` must be at least the size of the largest class + 2, so that every batch "
            "has 2 classes. Received: batch_size=5, largest=4",
        ),
        (
            {"labels": [0, 0, 1, 2]},
            ValueError,
            "whole classes need 2 or more classes with 2 or more images. Received: classes=1",
        ),
        ({"batch_size": 3}, ValueError, "`batch_size` must be >= 4. Received: batch_size=3"),
        ({"batch_size": 9.0}, TypeError, "`batch_size` must be an integer"),
        ({"seed": -1}, ValueError, "`seed` must be >= 0. Received: seed=-1"),
        ({"start_step": 2**63}, ValueError, "`start_step` must be < 2**63"),
    ],
)
def test_rejects_what_cannot_be_drawn(options, error, message):
    arguments = {"labels": [0, 0, 0, 0, 1, 1, 2], "batch_size": 9, **options}
    with pytest.raises(error, match=re.escape(message)):
        whole_class_indices(**arguments)


@pytest.mark.parametrize("labels", [["a", "a", "b", "b"], [0.0, 0.0, 1.0, 1.0]])
def test_rejects_labels_that_are_no_integers(labels):
    with pytest.raises(TypeError, match=r"`labels` must be integers. Received: dtype="):
        whole_class_indices(labels, 4)
