import collections
import itertools
import re
import time

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from sampled_rows import labels_of, rows_of, split_of

from pipelines import HardNeighbours, Pairs, pair_batches, pair_sampler
from pipelines.pair_sampler import all_pairs, nearest_of_other_classes, positive_pairs


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


@settings(max_examples=8, deadline=None)
@given(
    counts=st.lists(st.integers(1, 6), min_size=8, max_size=20),
    half=st.integers(1, 9),
    seed=st.integers(0, 2**40),
)
def test_an_epoch_has_every_positive_pair_and_as_many_negative_ones(counts, half, seed):
    labels, images = labels_of(counts), sum(counts)
    positives, per_image, batches = epoch_of(counts, half)
    rows = take(2 * batches, labels, 2 * half, seed=seed)
    np.testing.assert_array_equal(rows[:batches], rows[batches:])  # every epoch has the same list
    pairs = as_pairs(rows[:batches])
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


def test_few_classes_of_many_images_use_each_negative_equally_often():
    labels = labels_of([30, 30, 30])
    pairs = all_pairs(labels, 1, seed=3).T.tolist()
    negatives = kinds(labels, pairs)[2]
    assert len(negatives) == 16 * 90
    for label in range(3):
        rights = collections.Counter(right for left, right in negatives if labels[left] == label)
        assert set(rights.values()) == {8}


def test_warns_if_no_class_has_two_images():
    with pytest.warns(UserWarning, match=r"no class has 2 images or more.*Received: classes=8"):
        rows_of(1, Pairs(4), np.arange(8))


def test_more_pairs_than_the_memory_holds_are_rejected_before_they_are_made(monkeypatch):
    monkeypatch.setattr("tfdml.checks.total_memory", lambda: 1000)
    with pytest.raises(ValueError, match=r"all pairs of images of a class must fit.*pairs=48"):
        positive_pairs(labels_of([10, 3]))


def drawn_of(counts, size, refresh_every, **options):
    """Labels of classes of so many images, their `HardNeighbours`, and the rows of each batch."""
    split = split_of(labels_of(counts))
    neighbours = HardNeighbours(split.labels, size, refresh_every)
    batches = pair_batches(split, size, hard_neighbours=neighbours, **options)
    return split.labels, neighbours, (rows for rows, _ in batches.as_numpy_iterator())


def by_distance(embeddings, labels, row):
    """All rows of other classes, the nearest first."""
    others = np.flatnonzero(labels != labels[row])
    distances = np.sum((embeddings[others] - embeddings[row]) ** 2, axis=1)
    return others[np.argsort(distances, kind="stable")].tolist()


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_the_nearest_are_those_of_a_loop_over_all_rows(offset, rng, monkeypatch):
    monkeypatch.setattr(pair_sampler, "_BLOCK_BYTES", 7 * 4 * 60)  # 60 rows, 7 at a time
    embeddings = rng.normal(size=(60, 5)) + offset
    labels = rng.permutation(np.repeat([2**40, -7, 2**40 + 1, 3], 15))
    found = nearest_of_other_classes(np.zeros((6, 2)), np.array([0, 1, 0, 1, 0, 1]), 3)
    assert found.tolist() == [[1, 3, 5], [0, 2, 4]] * 3  # of equal rows the first
    found = nearest_of_other_classes(embeddings, labels, 9)
    expected = [by_distance(embeddings, labels, row)[:9] for row in range(60)]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("counts", "size"),
    [([5, 4, 6, 3, 1, 5], 12), ([4, 3, 3], 8)],  # the fewest images of other classes
)
def test_each_image_of_the_pairs_adds_the_nearest_that_the_batch_has_not(counts, size, rng):
    labels, neighbours, batches = drawn_of(counts, size, 40, seed=3)
    embeddings, half, quarter = rng.normal(size=(len(labels), 3)), size // 2, size // 4
    neighbours.refresh(0, embeddings)
    for rows in itertools.islice(batches, 40):
        lefts, rights = rows[:quarter], rows[quarter:half]
        assert (labels[lefts] == labels[rights]).all()
        assert (lefts != rights).all()
        expected = rows[:half].tolist()
        for row in rows[:half]:
            nearest = by_distance(embeddings, labels, row)
            expected.append(next(other for other in nearest if other not in expected))
        assert rows.tolist() == expected


def test_an_epoch_has_every_positive_pair_once_in_an_order_of_its_own():
    _, neighbours, batches = drawn_of([4] * 6, 12, 24)  # 36 pairs, 3 a batch
    neighbours.refresh(0, np.zeros((24, 1)))
    rows = np.stack(list(itertools.islice(batches, 24)))
    pairs = np.sort(rows[:, :6].reshape(24, 2, 3).transpose(0, 2, 1).reshape(72, 2), axis=1)
    epochs = [list(map(tuple, half.tolist())) for half in (pairs[:36], pairs[36:])]
    assert len(set(epochs[0])) == len(set(epochs[1])) == 36
    assert epochs[0] != epochs[1]


@pytest.fixture
def tables(rng):
    return {step: rng.normal(size=(24, 3)) for step in range(0, 50, 5)}


def batches_from(start, tables, count, pause=0.0):
    """Batches of 8 of 24 images, refreshed every 5 steps by the table of the step."""
    _, neighbours, batches = drawn_of([4] * 6, 8, 5, seed=1, start_step=start)
    rows = []
    for step in range(start, start + count):
        if step % 5 == 0:
            time.sleep(pause)  # in which a pipeline that reads ahead would
            neighbours.refresh(step, tables[step])
        rows.append(next(batches))
    return rows


def test_batches_are_made_of_the_last_refresh_and_never_ahead_of_the_next(tables):
    changed = batches_from(0, tables, 15, pause=0.2)
    constant = batches_from(0, dict.fromkeys(tables, tables[0]), 15)
    for step in range(15):
        np.testing.assert_array_equal(changed[step][:4], constant[step][:4])
        assert step >= 5 or changed[step].tolist() == constant[step].tolist()
    assert all(
        any((changed[step] != constant[step]).any() for step in range(first, first + 5))
        for first in (5, 10)
    )
    np.testing.assert_array_equal(batches_from(10, tables, 5), changed[10:])


def test_a_batch_without_its_refresh_is_an_error(tables):
    _, _, batches = drawn_of([4] * 6, 8, 5)
    with pytest.raises(tf.errors.OpError, match="`refresh` must be called at step 0, before its"):
        next(batches)
    _, neighbours, batches = drawn_of([4] * 6, 8, 5, start_step=3)
    for step in (3, 8):  # counted from the first
        neighbours.refresh(step, tables[0])
        assert len([*itertools.islice(batches, 5)]) == 5
    message = "must be called at step 13, before its batch is taken. The last call was at step 8"
    with pytest.raises(tf.errors.OpError, match=message):
        next(batches)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"batch_size": 6}, ValueError, "`batch_size` must be a multiple of 4. Received: batch_s"),
        ({"batch_size": 2}, ValueError, "`batch_size` must be >= 4. Received: batch_size=2"),
        ({"refresh_every": 0}, ValueError, "`refresh_every` must be >= 1"),
        ({"labels": [1] * 9}, ValueError, "negative pairs need 2 classes or more. Received: clas"),
        ({"labels": range(9)}, ValueError, "pairs than there are. Received: pairs=0, of a batch=2"),
        ({"labels": [0, 0, 0, 0, 1, 1, 1, 2, 2]}, ValueError, "class. Received: batch_size=8, oth"),
    ],
)
def test_rejects_what_cannot_be_drawn(options, error, message):
    arguments = {"labels": np.arange(12) // 2, "batch_size": 8, "refresh_every": 5, **options}
    with pytest.raises(error, match=re.escape(message)):
        HardNeighbours(**arguments)


@pytest.mark.parametrize(
    ("embeddings", "message"),
    [
        (np.zeros((11, 2)), "must have one row per image. Received: embeddings.shape=(11, 2), im"),
        (np.zeros(12), "must have one row per image. Received: embeddings.shape=(12,), images=12"),
        (np.full((12, 2), np.nan), "must be finite. Received: infinite numbers or NaN"),
    ],
)
def test_rejects_embeddings_that_cannot_be(embeddings, message):
    neighbours = HardNeighbours(np.arange(12) // 2, 8, refresh_every=5)
    with pytest.raises(ValueError, match=re.escape(f"`embeddings` {message}")):
        neighbours.refresh(0, embeddings)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"hard_neighbours": True}, TypeError, "must be a `HardNeighbours` or None. Received: ha"),
        ({"batch_size": 4}, ValueError, "Received: batch_size=4, hard_neighbours.batch_size=8"),
        ({"split": split_of(labels_of([2] * 8))}, ValueError, "must have the labels of the split"),
    ],
)
def test_batches_reject_neighbours_of_others(options, error, message):
    split = split_of(labels_of([2] * 9))
    neighbours = HardNeighbours(split.labels, 8, refresh_every=5)
    arguments = {"split": split, "batch_size": 8, "hard_neighbours": neighbours, **options}
    with pytest.raises(error, match=re.escape(message)):
        pair_batches(**arguments)
