import collections
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampled_rows import labels_of, rows_of

from pipelines.hard_neighbours import positive_pairs
from pipelines.pairs import Pairs, all_pairs


def take(batches, labels, batch_size, seed=0, **options):
    return np.stack(rows_of(batches, Pairs(batch_size, **options), labels, seed))


def as_pairs(batches):
    """Every pair of the batches, the left image first."""
    halves = batches.reshape(len(batches), 2, -1)
    return [tuple(pair) for half in halves for pair in half.T.tolist()]


def kinds(labels, pairs):
    """The pairs of a class, those of an image with itself, and those of two classes."""
    positives = [pair for pair in pairs if labels[pair[0]] == labels[pair[1]]]
    return (
        [pair for pair in positives if pair[0] != pair[1]],
        [pair for pair in positives if pair[0] == pair[1]],
        [pair for pair in pairs if labels[pair[0]] != labels[pair[1]]],
    )


def epoch_of(counts, half):
    """By hand: positive pairs, negative ones per image, and the batches of an epoch."""
    images, positives = sum(counts), sum(n * (n - 1) // 2 for n in counts)
    per_image = -(-(positives + images) // images)
    return positives, per_image, (positives + images + per_image * images) // half


@pytest.mark.parametrize("examples", [6, pytest.param(40, marks=pytest.mark.slow)])
def test_an_epoch_has_every_positive_pair_and_as_many_negative_ones(examples):
    @settings(max_examples=examples, deadline=None)
    @given(
        counts=st.lists(st.integers(1, 6), min_size=8, max_size=20),
        half=st.integers(1, 9),
        seed=st.integers(0, 2**40),
    )
    def check(counts, half, seed):
        labels, images = labels_of(counts), sum(counts)
        positives, per_image, batches = epoch_of(counts, half)
        pairs = as_pairs(take(batches, labels, 2 * half, seed=seed))
        of_a_class, itself, negatives = kinds(labels, pairs)
        assert len(of_a_class) == len({frozenset(pair) for pair in of_a_class}) == positives
        assert sorted(itself) == [(row, row) for row in range(images)]
        assert len(pairs) == batches * half
        assert 0 <= per_image * images - len(negatives) < half
        lefts = collections.Counter(left for left, _ in negatives)
        assert max(lefts.values()) <= per_image
        for label in set(labels):
            others = [right for left, right in negatives if labels[left] == label]
            if per_image * counts[label] <= images - counts[label]:
                assert len(set(others)) == len(others)

    check()


def test_counts_are_those_of_the_released_list():
    # 59,551 images of 11,318 classes with 177,092 pairs, as Stanford Online Products has.
    labels = labels_of([2] * 5098 + [3] * 50 + [5] * 53 + [8] * 6116 + [12])
    pairs = all_pairs(labels, 64, seed=0)
    classes = labels[pairs]
    of_a_class = classes[0] == classes[1]
    assert of_a_class.sum() == 177_092 + 59_551
    assert (pairs[0] == pairs[1]).sum() == 59_551
    assert pairs.shape[1] == 7_419 * 64
    assert (~of_a_class).sum() == 4 * 59_551 - (177_092 + 5 * 59_551) % 64
    assert pairs.dtype == np.int32


def test_a_batch_has_about_as_many_pairs_of_one_class_as_of_two():
    labels = labels_of([5] * 300)
    batches = take(40, labels, 128).reshape(40, 2, 64)
    shares = (labels[batches[:, 0]] == labels[batches[:, 1]]).mean(axis=1)
    assert 0.25 < shares.min() < shares.max() < 0.75
    np.testing.assert_allclose(shares.mean(), 0.5, atol=0.04)


def test_a_negative_is_any_image_of_other_classes():
    labels = labels_of([3] * 10)
    drawn = np.zeros((30, 30), int)
    for seed in range(300):
        _, _, negatives = kinds(labels, all_pairs(labels, 1, seed).T.tolist())
        np.add.at(drawn, tuple(np.transpose(negatives)), 1)
    same = labels[:, None] == labels
    assert (drawn[same] == 0).all()
    # 300 times 2 of 27 others: mean 22.2, standard deviation 4.5: almost 5 of them.
    np.testing.assert_allclose(drawn[~same], 22.2, atol=22)


def test_few_classes_of_many_images_use_each_negative_equally_often():
    labels = labels_of([30, 30, 30])
    pairs = all_pairs(labels, 1, seed=3).T.tolist()
    negatives = kinds(labels, pairs)[2]
    assert len(negatives) == 16 * 90
    for label in range(3):
        rights = collections.Counter(right for left, right in negatives if labels[left] == label)
        assert set(rights.values()) == {8}


def test_the_same_list_comes_again_unless_it_is_shuffled_anew():
    labels = labels_of([2, 3, 4, 5, 3, 2, 4, 4])
    epoch = epoch_of([2, 3, 4, 5, 3, 2, 4, 4], 5)[2]
    again = take(2 * epoch, labels, 10)
    np.testing.assert_array_equal(again[:epoch], again[epoch:])
    anew = take(2 * epoch, labels, 10, reshuffle=True)
    assert as_pairs(anew[:epoch]) != as_pairs(anew[epoch:])
    for half in (anew[:epoch], anew[epoch:]):
        assert sorted(as_pairs(half)) == sorted(as_pairs(again[:epoch]))


def test_the_seed_decides_the_list():
    labels = labels_of([4] * 12)
    first, again, other = (all_pairs(labels, 4, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert set(map(tuple, first.T)) != set(map(tuple, other.T))


def test_pairs_of_many_small_classes_take_no_call_for_each():
    began = time.process_time()
    pairs = positive_pairs(np.repeat(np.arange(100_000), 2))
    assert time.process_time() - began < 0.5
    np.testing.assert_array_equal(pairs, np.arange(200_000).reshape(-1, 2).T)


@pytest.mark.slow
def test_a_hundred_thousand_classes_of_two_images_start_in_seconds():
    began = time.process_time()
    take(1, np.repeat(np.arange(100_000), 2), 128)
    assert time.process_time() - began < 2.5


def test_warns_if_no_class_has_two_images():
    with pytest.warns(UserWarning, match=r"no class has 2 images or more.*Received: classes=8"):
        rows_of(1, Pairs(4), np.arange(8))


def test_more_pairs_than_the_memory_holds_are_rejected_before_they_are_made(monkeypatch):
    monkeypatch.setattr("tfdml.checks._memory", lambda: 1000)
    with pytest.raises(ValueError, match=r"all pairs of images of a class must fit.*pairs=48"):
        positive_pairs(labels_of([10, 3]))
