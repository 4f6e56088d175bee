"""What every sampler promises: a batch is a function of (seed, step), at any step at once."""

import re
import time

import numpy as np
import pytest
from sampled_rows import nested, rows_of, split_of

from pipelines import (
    Balanced,
    DistinctPictures,
    Groups,
    Mixed,
    Pairs,
    Shuffled,
    Split,
    WholeClasses,
)

NESTED = nested([[9] * 8, [2, 3, 4, 5] * 6, [4] * 5, [7, 1, 6]])
SAMPLERS = {  # with the rows of a batch, None where they vary
    "balanced": (Balanced(3, 2), 6),
    "mixed": (Mixed(5, 3), 15),
    "groups": (Groups(6, 30), None),
    "groups of one": (Groups(4, 12, super_classes=1, images_per_class=2, evenly=True), None),
    "whole classes": (WholeClasses(20), None),
    "pairs": (Pairs(8), 8),
    "shuffled": (Shuffled(12), 12),
}
every_sampler = pytest.mark.parametrize("name", SAMPLERS)


@every_sampler
def test_a_batch_is_a_function_of_seed_and_step(name):
    sampler, size = SAMPLERS[name]
    split = split_of(*NESTED)
    whole = rows_of(40, sampler, split, seed=2**63 - 1)
    for rows in whole:
        assert len(rows) <= sampler.batch_size
        assert size in (None, len(rows))
    resumed = rows_of(3, sampler, split, seed=2**63 - 1, start=23)
    assert [*map(list, resumed)] == [*map(list, whole[23:26])]
    alone = sampler.indices(split, np.int64(2**63 - 1), np.int32(5))
    assert alone.dtype == np.int64
    np.testing.assert_array_equal(alone, whole[5])
    other = rows_of(5, sampler, split, seed=3)
    assert [*map(list, other)] != [*map(list, whole[:5])]
    assert len({tuple(rows) for rows in whole}) > 35


@every_sampler
def test_many_classes_start_at_once_at_any_step(name):
    labels = np.repeat(np.arange(11_318), 5)
    began = time.perf_counter()
    rows_of(1, SAMPLERS[name][0], split_of(labels, labels % 12), start=10_000_000)
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize(
    "sampler", [Balanced(2, 2), Mixed(2, 2), WholeClasses(4), Groups(2, 4, super_classes=1)]
)
def test_class_ids_may_be_any_integers(sampler):
    labels = np.array([2**40, -7, 2**40 + 1, 2**40, -7, 2**40 + 1])
    for rows in rows_of(5, sampler, split_of(labels, labels * 0)):
        assert len(set(labels[rows])) == 2
        assert len(set(rows)) == 4


def test_batches_of_a_seed_and_step_stay_what_they_were():
    labels = np.repeat(np.arange(6), [2, 3, 4, 2, 5, 3])
    drawn = {
        Balanced(3, 2): [[6, 5, 13, 12, 10, 9], [7, 6, 3, 4, 10, 9]],
        Mixed(3, 2): [[6, 5, 13, 12, 15, 14], [7, 6, 3, 4, 2, 3]],
        Groups(4, 9): [[12, 11, 14, 17, 18, 5, 7, 8], [7, 6, 8, 9, 10, 13, 14, 18, 16]],
        Pairs(6): [[7, 6, 10, 7, 8, 15], [16, 6, 12, 18, 11, 13]],
        WholeClasses(8): [[12, 11, 14, 15, 13, 9, 10], [9, 10, 4, 2, 3, 8, 6, 5]],
        Shuffled(5): [[10, 13, 3, 15, 2], [17, 14, 4, 5, 6]],
    }
    for sampler, expected in drawn.items():
        rows = rows_of(2, sampler, split_of(labels, labels // 2), seed=1, start=9)
        assert [each.tolist() for each in rows] == expected


@pytest.mark.parametrize("name", ["balanced", "pairs", "shuffled"])
def test_two_images_of_one_picture_are_never_in_one_batch(name):
    split, (sampler, size) = split_of(*NESTED), SAMPLERS[name]
    pictures, first, second = np.arange(len(split.labels)), set(), set()
    for label in split.classes:
        rows = np.flatnonzero(split.labels == label)
        if len(rows) > 3:
            pictures[rows[1]] = rows[0]
            first.add(int(rows[0]))
            second.add(int(rows[1]))
    distinct = DistinctPictures(sampler, pictures)
    assert distinct.batch_size == sampler.batch_size
    batches = rows_of(100, distinct, split)
    for rows in batches:
        assert len(set(rows)) == len(set(pictures[rows]))
        assert size in (None, len(rows))
    drawn = set(np.concatenate(batches).tolist())
    assert drawn & first
    assert drawn & second
    same = DistinctPictures(sampler, np.arange(len(pictures)))
    expected = rows_of(3, sampler, split)
    assert [*map(list, rows_of(3, same, split))] == [*map(list, expected)]
    with pytest.raises(ValueError, match=r"`pictures` must have one number per image"):
        DistinctPictures(sampler, pictures[1:]).indices(split, 0, 0)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: Balanced(0, 2), ValueError, "`classes_per_batch` must be >= 1"),
        (lambda: Balanced(2, 0), ValueError, "`images_per_class` must be >= 1"),
        (lambda: Groups(3, 9), ValueError, "`super_classes` must divide `classes_per_batch`"),
        (lambda: Groups(2, 3), ValueError, "`batch_size` must be >= 4"),
        (lambda: Groups(2, 9, 0), ValueError, "`super_classes` must be >= 1"),
        (lambda: Groups(2, 9, 2, 1), ValueError, "`images_per_class` must be >= 2"),
        (lambda: Groups(2, 9, evenly="yes"), TypeError, "`evenly` must be true or false"),
        (lambda: WholeClasses(3), ValueError, "`batch_size` must be >= 4"),
        (lambda: Shuffled(0), ValueError, "`batch_size` must be >= 1"),
        (lambda: Pairs(0), ValueError, "`batch_size` must be >= 2"),
    ],
)
def test_numbers_are_checked_when_a_sampler_is_built(build, error, message):
    with pytest.raises(error, match=re.escape(message)):
        build()


@pytest.mark.parametrize(
    ("sampler", "labels", "message"),
    [
        (Balanced(5, 2), [0, 0, 1, 1, 2, 3], "classes. Received: classes_per_batch=5, classes=4"),
        (Groups(4, 9, 4), [0, 0, 2, 2, 4, 4, 6, 7], "a class of 2 images or more. Received"),
        (Groups(2, 9, 1), [0, 0, 1, 2, 2, 3], "2 classes of 2 images or more. Received:"),
        (WholeClasses(5), [0, 0, 0, 0, 1, 1, 2], "Received: batch_size=5, largest=4"),
        (WholeClasses(9), [0, 0, 1, 2], "classes with 2 or more images. Received: classes=1"),
        (Shuffled(5), [0, 0, 1, 1], "number of images. Received: batch_size=5, images=4"),
        (Pairs(5), [0, 0, 1, 1], "`batch_size` must be a multiple of 2. Received: batch_size=5"),
        (Pairs(4), [3, 3], "negative pairs need 2 classes or more. Received: classes=1"),
        (Pairs(36), [0, 0, 1, 1, 2], "pairs than there are. Received: pairs=17, of a batch=18"),
    ],
)
def test_what_cannot_be_drawn_of_a_split_is_rejected(sampler, labels, message):
    labels = np.array(labels)
    with pytest.raises(ValueError, match=re.escape(message)):
        sampler.indices(split_of(labels, labels // 2), 0, 0)


@every_sampler
def test_images_of_several_labels_are_only_shuffled(name):
    split = Split(inputs=np.arange(40), labels=np.eye(40, 5, dtype=int))
    sampler = SAMPLERS[name][0]
    if name == "shuffled":
        assert len(sampler.indices(split, 0, 0)) == 12
        return
    needed = "must have one class id per image|groups need `super_labels`"
    with pytest.raises(ValueError, match=needed):
        sampler.indices(split, 0, 0)
