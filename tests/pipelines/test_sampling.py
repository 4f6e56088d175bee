"""What each sampler chooses; what they have in common is in `test_samplers.py`."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampled_rows import labels_of, nested, rows_of, split_of

from pipelines import Balanced, Groups, Mixed, Shuffled, WholeClasses


def take(batches, labels, *sizes, seed=0, sampler=Balanced):
    return np.stack(rows_of(batches, sampler(*sizes), labels, seed))


@settings(max_examples=8, deadline=None)
@given(
    counts=st.lists(st.integers(1, 7), min_size=1, max_size=12),
    data=st.data(),
    images_per_class=st.integers(1, 5),
    seed=st.integers(0, 2**40),
)
def test_every_batch_has_p_classes_of_k_images_as_distinct_as_can_be(
    counts, data, images_per_class, seed
):
    classes_per_batch = data.draw(st.integers(1, len(counts)))
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    for indices in take(2, labels, classes_per_batch, images_per_class, seed=seed):
        rows = indices.reshape(classes_per_batch, images_per_class)
        classes = labels[rows]
        assert (classes == classes[:, :1]).all()
        assert len(set(classes[:, 0])) == classes_per_batch
        for row, label in zip(rows, classes[:, 0], strict=True):
            repeats = np.unique(row, return_counts=True)[1]
            assert len(repeats) == min(images_per_class, counts[label])
            assert repeats.max() - repeats.min() <= 1


def test_an_epoch_visits_every_class_once_and_the_next_in_another_order():
    few = np.repeat(np.arange(7), 2)  # which 3 classes of a batch do not divide
    epochs = few[take(40, few, 3, 1)].reshape(20, 6)
    assert all(len(set(epoch)) == 6 for epoch in epochs)
    assert set(epochs.ravel()) == set(range(7))
    labels = np.repeat(np.arange(24), 3)
    classes = labels[take(12, labels, 4, 2)][:, ::2]
    first, second = classes[:6].ravel(), classes[6:].ravel()
    assert sorted(first) == sorted(second) == list(range(24))
    assert list(first) != list(second)


def test_every_image_of_a_class_is_drawn_equally_often():
    drawn = np.bincount(take(40, np.repeat(np.arange(50), 4), 50, 1).ravel() % 4)
    # A share of 1/4 of 2,000 draws has a standard deviation of 19.4: 5 of them.
    np.testing.assert_allclose(drawn, 500, atol=97)


@settings(max_examples=8, deadline=None)
@given(
    classes_per_batch=st.integers(1, 16),
    images_per_class=st.integers(1, 6),
    seed=st.integers(0, 2**40),
)
def test_mixed_batches_have_k_to_2k_images_of_a_class(classes_per_batch, images_per_class, seed):
    labels = np.repeat(np.arange(20), 18)
    p, k = classes_per_batch, images_per_class
    for indices in take(3, labels, p, k, seed=seed, sampler=Mixed):
        assert len(set(indices)) == p * k  # enough of each: none twice
        starts = np.flatnonzero(np.diff(labels[indices], prepend=-1))
        sizes = np.diff(np.append(starts, p * k))
        assert len(set(labels[indices])) == len(sizes) >= min(p, 2)
        assert sizes.min() >= k
        assert (sizes[:-1] <= 2 * k).all()
        assert sizes[-1] < 3 * k


def test_mixed_batches_mix_all_sizes_and_all_classes():
    labels = np.repeat(np.arange(30), 12)
    sizes, classes = [], set()
    for indices in take(200, labels, 16, 4, seed=1, sampler=Mixed):
        starts = np.flatnonzero(np.diff(labels[indices], prepend=-1))
        sizes += list(np.diff(np.append(starts, 64))[:-1])
        classes |= set(labels[indices])
    shares = np.bincount(sizes, minlength=9)[4:9] / len(sizes)
    np.testing.assert_allclose(shares, 0.2, atol=0.04)
    assert classes == set(range(30))


def test_mixed_batches_of_two_classes_have_both():
    labels = np.repeat(np.arange(5), 9)
    mixed = take(20, labels, 2, 4, seed=3, sampler=Mixed)
    np.testing.assert_array_equal(mixed, take(20, labels, 2, 4, seed=3))


def test_warns_if_a_positive_can_only_be_the_image_itself():
    with pytest.warns(UserWarning, match=r"no class has 2 images or more.*Received: classes=7"):
        take(1, np.arange(7), 3, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        take(1, np.arange(7), 3, 1)
        take(1, [0, 1, 1], 2, 2)


def groups(batches, labels, super_labels, *sizes, seed=0, **options):
    return rows_of(batches, Groups(*sizes, **options), split_of(labels, super_labels), seed)


@settings(max_examples=8, deadline=None)
@given(
    counts=st.lists(
        st.lists(st.integers(1, 9), min_size=1, max_size=6).filter(lambda c: max(c) > 1),
        min_size=1,
        max_size=5,
    ),
    data=st.data(),
    share=st.integers(1, 5),
    room=st.integers(1, 40),
    most=st.none() | st.integers(2, 6),
    evenly=st.booleans(),
    seed=st.integers(0, 2**40),
)
def test_groups_have_classes_of_two_images_or_more(counts, data, share, room, most, evenly, seed):
    super_classes = data.draw(st.integers(1, len(counts)))
    if super_classes == 1 < share:
        counts = [*counts, [2, 3]]
    labels, super_labels = nested(counts)
    classes = share * super_classes
    batch_size = max(classes + room, 4 if classes > 1 else 2)
    options = {"super_classes": super_classes, "images_per_class": most, "evenly": evenly}
    for indices in groups(3, labels, super_labels, classes, batch_size, seed=seed, **options):
        assert 2 <= len(indices) <= batch_size
        assert len(set(indices)) == len(indices)
        ids, sizes = np.unique(labels[indices], return_counts=True)
        assert len(ids) == np.count_nonzero(np.diff(labels[indices])) + 1  # each in a row
        assert sizes.min() >= 2
        assert most is None or sizes.max() <= most
        supers = np.array([super_labels[labels == label][0] for label in ids])
        assert len(set(supers)) <= super_classes
        assert len(ids) >= min(classes, 2)
        assert np.unique(supers, return_counts=True)[1].max() <= share


def test_groups_cut_to_few_images_keep_two_classes():
    labels, super_labels = nested([[60, 2], [50, 3, 2]])
    for super_classes, classes in ((2, 2), (1, 2), (1, 3)):
        sizes = {"classes_per_batch": classes, "batch_size": 4, "super_classes": super_classes}
        for indices in groups(8, labels, super_labels, **sizes):
            assert np.unique(labels[indices], return_counts=True)[1].tolist() == [2, 2]


def test_groups_of_one_super_class_are_of_one_with_two_classes():
    labels, super_labels = nested([[90], [2, 3], [50, 1]])
    for indices in groups(8, labels, super_labels, 2, 8, super_classes=1):
        assert set(super_labels[indices]) == {2**40 + 1}
        assert len(indices) == 5
    assert len(groups(1, labels, super_labels, 1, 8, super_classes=1)[0]) > 1


def test_groups_that_fit_have_all_images_of_as_many_classes_as_there_are():
    labels, super_labels = nested([[2, 3, 4], [5, 2], [3, 3, 3, 2, 1]])
    for indices in groups(8, labels, super_labels, 6, 24):
        drawn_super, sizes = np.unique(super_labels[indices], return_counts=True)
        assert len(drawn_super) == 2
        for label in set(labels[indices]):
            assert set(np.flatnonzero(labels == label)) <= set(indices)
        for super_class, size in zip(drawn_super - 2**40, sizes, strict=True):
            assert size in ([9], [7], [9, 8])[super_class]  # three of the four, none of one image


@pytest.mark.parametrize("evenly", [False, True])
def test_groups_draw_by_the_number_of_images_or_evenly(evenly):
    labels, super_labels = nested([[2, 3, 5], [10, 20], [12, 28]])
    drawn = np.zeros(7, int)  # one class of one super-class
    for indices in groups(600, labels, super_labels, 1, 30, super_classes=1, evenly=evenly):
        drawn[labels[indices[0]] + 3] += 1
    images = np.array([2, 3, 5, 10, 20, 12, 28])
    # Class by class its share of the super-class, times that of the super-class, is its own share.
    shares = np.array([1 / 9] * 3 + [1 / 6] * 4) if evenly else images / 80
    chi_square = np.sum((drawn - 600 * shares) ** 2 / (600 * shares))
    assert chi_square < 22.5  # of 6 degrees of freedom: 1 in 1,000; the seed is fixed


def test_groups_draw_one_after_the_other_without_replacement():
    labels, super_labels = nested([[2], [4], [6]])
    pairs = {}
    for indices in groups(600, labels, super_labels, 2, 12):
        pair = tuple(sorted({int(size) for size in np.bincount(labels[indices] + 3) if size}))
        pairs[pair] = pairs.get(pair, 0) + 1
    shares = {  # a first, b of those left, or b first
        (2, 4): 2 / 12 * 4 / 10 + 4 / 12 * 2 / 8,
        (2, 6): 2 / 12 * 6 / 10 + 6 / 12 * 2 / 6,
        (4, 6): 4 / 12 * 6 / 8 + 6 / 12 * 4 / 6,
    }
    assert pairs == {pair: pytest.approx(600 * share, abs=50) for pair, share in shares.items()}


def by_the_book(sizes, batch_size):
    """The images that each batch takes of each class, the classes in their order."""
    batches, batch = [], []
    for size in sizes:
        if batch_size - sum(batch) < 2:
            batches.append(batch)
            batch = []
        batch.append(min(size, batch_size - sum(batch)))
    return [*batches, batch]


@settings(max_examples=8, deadline=None)
@given(
    counts=st.lists(st.integers(1, 7), min_size=2, max_size=60).filter(
        lambda counts: sum(count > 1 for count in counts) > 1
    ),
    room=st.integers(2, 20),
    seed=st.integers(0, 2**40),
)
def test_an_epoch_takes_whole_classes_until_each_batch_is_full(counts, room, seed):
    labels, batch_size = labels_of(counts), max(counts) + room
    paired = [count for count in counts if count > 1]
    batches_per_epoch = max(1, sum(paired) // (batch_size - 2 + max(counts)))
    batches = rows_of(2 * batches_per_epoch, WholeClasses(batch_size), labels, seed)
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


@pytest.mark.parametrize(("images", "size"), [(12, 4), (11, 4), (7, 7), (5, 1), (2, 2), (1, 1)])
def test_an_epoch_has_every_image_at_most_once_and_the_next_another_order(images, size):
    per_epoch = images // size
    batches = np.array(rows_of(4 * per_epoch, Shuffled(size), np.zeros(images, int)))
    epochs = batches.reshape(4, per_epoch * size)
    for epoch in epochs:
        assert len(set(epoch)) == per_epoch * size
        assert set(epoch) <= set(range(images))
    if images > 4:
        assert len({tuple(epoch) for epoch in epochs}) == 4
