import itertools
import re
import time
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.sampling import balanced_indices, group_indices
from tfdml.losses import NPairLoss


def take(batches, *arguments, start=0, **options):
    dataset = balanced_indices(*arguments, start_step=start, **options)
    return np.stack(list(itertools.islice(dataset.as_numpy_iterator(), batches)))


@pytest.mark.parametrize("examples", [6, pytest.param(25, marks=pytest.mark.slow)])
def test_every_batch_has_p_classes_of_k_images_as_distinct_as_can_be(examples):
    @settings(max_examples=examples, deadline=None)
    @given(
        counts=st.lists(st.integers(1, 7), min_size=1, max_size=12),
        data=st.data(),
        images_per_class=st.integers(1, 5),
        seed=st.integers(0, 2**40),
    )
    def check(counts, data, images_per_class, seed):
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

    check()


def test_class_ids_may_be_any_integers():
    labels = np.array([2**40, -7, 2**40 + 1, 2**40, -7, 2**40 + 1])
    for indices in take(5, labels, 2, 2):
        assert len(set(labels[indices])) == 2
        assert len(set(indices)) == 4


def test_an_epoch_visits_every_class_once_and_the_next_in_another_order():
    labels = np.repeat(np.arange(24), 3)
    classes = labels[take(12, labels, 4, 2)][:, ::2]
    first, second = classes[:6].ravel(), classes[6:].ravel()
    assert sorted(first) == sorted(second) == list(range(24))
    assert list(first) != list(second)


def test_classes_that_p_does_not_divide_appear_at_most_once_an_epoch_and_all_in_time():
    labels = np.repeat(np.arange(7), 2)
    classes = labels[take(40, labels, 3, 1)].reshape(20, 6)
    assert all(len(set(epoch)) == 6 for epoch in classes)
    assert set(classes.ravel()) == set(range(7))


def test_all_images_of_a_class_appear():
    assert set(take(40, np.zeros(9, int), 1, 2).ravel()) == set(range(9))


def test_every_image_of_a_class_is_drawn_equally_often():
    drawn = np.bincount(take(2000, np.zeros(4, int), 1, 1).ravel())
    # A share of 1/4 of 2,000 draws has a standard deviation of 19.4: 5 of them.
    np.testing.assert_allclose(drawn, 500, atol=97)


def test_starting_at_a_step_equals_skipping_to_it():
    labels = np.repeat(np.arange(10), 4)
    np.testing.assert_array_equal(take(20, labels, 3, 2)[13:], take(7, labels, 3, 2, start=13))


def test_the_seed_decides_the_batches():
    labels = np.repeat(np.arange(10), 4)
    np.testing.assert_array_equal(take(4, labels, 3, 2, seed=1), take(4, labels, 3, 2, seed=1))
    assert (take(4, labels, 3, 2, seed=1) != take(4, labels, 3, 2, seed=2)).any()


def test_takes_the_largest_seed():
    assert sorted(take(1, [0, 0], 1, 2, seed=2**63 - 1)[0]) == [0, 1]


def test_shapes_are_static():
    assert balanced_indices([0, 0, 1], 2, 3).element_spec.shape == (6,)


def test_many_classes_start_at_once_at_any_step():
    labels = np.repeat(np.arange(11_318), 5)
    for start in (0, 10_000_000):
        began = time.perf_counter()
        take(1, labels, 32, 4, start=start)
        assert time.perf_counter() - began < 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"classes_per_batch": 5},
            r"`classes_per_batch` must not exceed the number of classes\. "
            r"Received: classes_per_batch=5, classes=4",
        ),
        ({"classes_per_batch": 0}, r"`classes_per_batch` must be >= 1\. Received: .*=0"),
        ({"images_per_class": 0}, r"`images_per_class` must be >= 1\. Received: .*=0"),
        (
            {"images_per_class": 2**30},
            r"`images_per_class` must be < 2\*\*31\. Received: .*images_per_class=1073741824",
        ),
        ({"start_step": -1}, r"`start_step` must be >= 0\. Received: start_step=-1"),
        ({"seed": -1}, r"`seed` must be >= 0\. Received: seed=-1"),
        ({"seed": 2**63}, r"`seed` must be < 2\*\*63\. Received: seed=9223372036854775808"),
    ],
)
def test_rejects_what_cannot_be_drawn(options, message):
    with pytest.raises(ValueError, match=message):
        balanced_indices(
            [0, 0, 1, 1, 2, 3], **{"classes_per_batch": 2, "images_per_class": 2, **options}
        )


@pytest.mark.parametrize("name", ["classes_per_batch", "images_per_class", "seed", "start_step"])
@pytest.mark.parametrize("value", [2.0, "2", None, True])
def test_rejects_what_is_no_integer(name, value):
    options = {"classes_per_batch": 2, "images_per_class": 2, name: value}
    with pytest.raises(TypeError, match=f"`{name}` must be an integer. Received: {name}={value!r}"):
        balanced_indices([0, 0, 1, 1], **options)


def test_takes_integers_of_numpy():
    labels = np.repeat(np.arange(10), 4)
    numpy_integers = take(2, labels, np.int64(3), np.int32(2), seed=np.uint8(5), start=np.int64(7))
    np.testing.assert_array_equal(numpy_integers, take(2, labels, 3, 2, seed=5, start=7))


@pytest.mark.parametrize("examples", [6, pytest.param(25, marks=pytest.mark.slow)])
def test_mixed_batches_have_k_to_2k_images_of_a_class(examples):
    @settings(max_examples=examples, deadline=None)
    @given(
        classes_per_batch=st.integers(1, 16),
        images_per_class=st.integers(1, 6),
        seed=st.integers(0, 2**40),
    )
    def check(classes_per_batch, images_per_class, seed):
        labels = np.repeat(np.arange(20), 18)
        p, k = classes_per_batch, images_per_class
        for indices in take(3, labels, p, k, seed=seed, sampler="mixed"):
            assert len(set(indices)) == p * k  # enough of each: none twice
            starts = np.flatnonzero(np.diff(labels[indices], prepend=-1))
            sizes = np.diff(np.append(starts, p * k))
            assert len(set(labels[indices])) == len(sizes) >= min(p, 2)
            assert sizes.min() >= k
            assert (sizes[:-1] <= 2 * k).all()
            assert sizes[-1] < 3 * k

    check()


def test_mixed_batches_mix_all_sizes_and_all_classes():
    labels = np.repeat(np.arange(30), 12)
    sizes, classes = [], set()
    for indices in take(200, labels, 16, 4, seed=1, sampler="mixed"):
        starts = np.flatnonzero(np.diff(labels[indices], prepend=-1))
        sizes += list(np.diff(np.append(starts, 64))[:-1])
        classes |= set(labels[indices])
    shares = np.bincount(sizes, minlength=9)[4:9] / len(sizes)
    np.testing.assert_allclose(shares, 0.2, atol=0.04)
    assert classes == set(range(30))


@pytest.mark.parametrize("images_per_class", [1, 2, 4])
def test_mixed_batches_of_two_classes_have_both(images_per_class):
    labels = np.repeat(np.arange(5), 9)
    mixed = take(20, labels, 2, images_per_class, seed=3, sampler="mixed")
    np.testing.assert_array_equal(mixed, take(20, labels, 2, images_per_class, seed=3))


def test_batches_of_a_seed_and_step_stay_what_they_were():
    labels = np.repeat(np.arange(6), [2, 3, 4, 2, 5, 3])
    drawn = take(2, labels, 3, 2, seed=1, start=9).tolist()
    assert drawn == [[6, 5, 13, 12, 10, 9], [7, 6, 3, 4, 10, 9]]
    drawn = take(2, labels, 3, 2, seed=1, start=9, sampler="mixed").tolist()
    assert drawn == [[6, 5, 13, 12, 15, 14], [7, 6, 3, 4, 2, 3]]
    drawn = [rows.tolist() for rows in groups(2, labels, labels // 2, 4, 9, seed=1, start=9)]
    assert drawn == [[12, 11, 14, 17, 18, 5, 7, 8], [7, 6, 8, 9, 10, 13, 14, 18, 16]]


def test_warns_if_a_positive_can_only_be_the_image_itself():
    with pytest.warns(UserWarning, match=r"no class has 2 images or more.*Received: classes=7"):
        take(1, np.arange(7), 3, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        take(1, np.arange(7), 3, 1)
        take(1, [0, 1, 1], 2, 2)


def test_mixed_batches_resume_at_any_step():
    labels = np.repeat(np.arange(9), 10)
    whole = take(8, labels, 4, 3, seed=2, sampler="mixed")
    np.testing.assert_array_equal(
        take(3, labels, 4, 3, start=5, seed=2, sampler="mixed"), whole[5:]
    )


def test_a_small_class_repeats_its_images_in_a_mixed_batch():
    labels = np.repeat(np.arange(4), [3, 3, 3, 30])
    for indices in take(10, labels, 4, 4, sampler="mixed"):
        for label in set(labels[indices]):
            repeats = np.unique(indices[labels[indices] == label], return_counts=True)[1]
            assert repeats.max() - repeats.min() <= 1


def test_rejects_an_unknown_sampler():
    with pytest.raises(ValueError, match=r"must be one of .*'mixed'.* Received: sampler='mxed'"):
        balanced_indices(np.arange(4) // 2, 2, 2, sampler="mxed")


def test_anchors_before_positives_are_the_same_to_the_n_pair_loss(rng):
    labels, embeddings = np.repeat(np.arange(6), 2), rng.normal(size=(12, 4)).astype(np.float32)
    blocks = np.argsort(np.arange(12) % 2, kind="stable")
    loss = NPairLoss(pairs="first")
    assert float(loss(labels, embeddings)) == pytest.approx(
        float(loss(labels[blocks], embeddings[blocks])), rel=1e-6
    )


def groups(batches, *arguments, start=0, **options):
    dataset = group_indices(*arguments, start_step=start, **options)
    return list(itertools.islice(dataset.as_numpy_iterator(), batches))


def nested(counts):
    """Labels and super-labels, shuffled, of super-classes whose classes have so many images."""
    sizes = [size for super_class in counts for size in super_class]
    super_of = np.repeat(np.arange(len(counts)), [len(super_class) for super_class in counts])
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    return labels - 3, super_of[labels] + 2**40


@pytest.mark.parametrize("examples", [6, pytest.param(25, marks=pytest.mark.slow)])
def test_groups_have_two_images_or_more_of_each_class_of_few_super_classes(examples):
    @settings(max_examples=examples, deadline=None)
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
    def check(counts, data, share, room, most, evenly, seed):
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

    check()


def test_groups_cut_to_few_images_keep_two_classes():
    labels, super_labels = nested([[60, 2], [50, 3, 2]])
    for super_classes, classes in ((2, 2), (1, 2), (1, 3)):
        sizes = {"classes_per_batch": classes, "batch_size": 4, "super_classes": super_classes}
        for indices in groups(40, labels, super_labels, **sizes):
            assert np.unique(labels[indices], return_counts=True)[1].tolist() == [2, 2]


def test_groups_of_one_super_class_are_of_one_with_two_classes():
    labels, super_labels = nested([[90], [2, 3], [50, 1]])
    for indices in groups(20, labels, super_labels, 2, 8, super_classes=1):
        assert set(super_labels[indices]) == {2**40 + 1}
        assert len(indices) == 5
    assert len(groups(1, labels, super_labels, 1, 8, super_classes=1)[0]) > 1


def test_groups_that_fit_have_all_images_of_as_many_classes_as_there_are():
    labels, super_labels = nested([[2, 3, 4], [5, 2], [3, 3, 3, 2, 1]])
    for indices in groups(30, labels, super_labels, 6, 24):
        drawn_super, sizes = np.unique(super_labels[indices], return_counts=True)
        assert len(drawn_super) == 2
        for label in set(labels[indices]):
            assert set(np.flatnonzero(labels == label)) <= set(indices)
        for super_class, size in zip(drawn_super - 2**40, sizes, strict=True):
            assert size in ([9], [7], [9, 8])[super_class]  # three of the four, none of one image


def test_groups_that_do_not_fit_are_cut_at_random():
    labels, super_labels = nested([[30] * 10, [30] * 10])
    kept = np.zeros(600, int)
    for indices in groups(300, labels, super_labels, 20, 100):
        assert 95 <= len(indices) <= 100  # an expected 0.5 of 20 classes keep a single image
        kept[indices] += 1
    # 300 draws of 1/6: mean 50, standard deviation 6.5; the largest of 600 lies within 5 of them.
    np.testing.assert_allclose(kept, 50, atol=32)


def test_groups_draw_at_most_so_many_images_of_a_class_at_random():
    labels, super_labels = nested([[8], [8]])
    kept = np.zeros(16, int)
    for indices in groups(400, labels, super_labels, 2, 16, images_per_class=2):
        assert len(indices) == 4
        kept[indices] += 1
    # 400 draws of 1/4: mean 100, standard deviation 8.7: 4 of them.
    np.testing.assert_allclose(kept, 100, atol=35)


@pytest.mark.parametrize("evenly", [False, True])
def test_groups_draw_by_the_number_of_images_or_evenly(evenly):
    labels, super_labels = nested([[2, 3, 5], [10, 20], [12, 28]])
    drawn = np.zeros(7, int)  # one class of one super-class
    for indices in groups(1500, labels, super_labels, 1, 30, super_classes=1, evenly=evenly):
        drawn[labels[indices[0]] + 3] += 1
    images = np.array([2, 3, 5, 10, 20, 12, 28])
    # Class by class its share of the super-class, times that of the super-class, is its own share.
    shares = np.array([1 / 9] * 3 + [1 / 6] * 4) if evenly else images / 80
    chi_square = np.sum((drawn - 1500 * shares) ** 2 / (1500 * shares))
    assert chi_square < 22.5  # of 6 degrees of freedom: 1 in 1,000; the seed is fixed


def test_groups_draw_one_after_the_other_without_replacement():
    labels, super_labels = nested([[2], [4], [6]])
    pairs = {}
    for indices in groups(1500, labels, super_labels, 2, 12):
        pair = tuple(sorted({int(size) for size in np.bincount(labels[indices] + 3) if size}))
        pairs[pair] = pairs.get(pair, 0) + 1
    shares = {  # a first, b of those left, or b first
        (2, 4): 2 / 12 * 4 / 10 + 4 / 12 * 2 / 8,
        (2, 6): 2 / 12 * 6 / 10 + 6 / 12 * 2 / 6,
        (4, 6): 4 / 12 * 6 / 8 + 6 / 12 * 4 / 6,
    }
    assert pairs == {pair: pytest.approx(1500 * share, abs=80) for pair, share in shares.items()}


def test_groups_reach_every_class_and_image():
    labels, super_labels = nested([[4] * 13, [3] * 9, [2] * 5])
    seen = np.concatenate(groups(300, labels, super_labels, 4, 16))
    assert set(seen) == set(range(len(labels)))


def test_groups_follow_seed_and_step_alone():
    labels, super_labels = nested([[9] * 8] * 4)
    whole = groups(8, labels, super_labels, 6, 30, seed=2)
    for resumed, expected in zip(
        groups(3, labels, super_labels, 6, 30, seed=2, start=5), whole[5:], strict=True
    ):
        np.testing.assert_array_equal(resumed, expected)
    other = groups(8, labels, super_labels, 6, 30, seed=3)
    assert [set(a) for a in whole] != [set(b) for b in other]
    assert len({tuple(indices) for indices in whole}) == 8


def test_many_groups_start_at_once_at_any_step():
    labels = np.repeat(np.arange(11_318), 5)
    for start in (0, 10_000_000):
        began = time.perf_counter()
        groups(1, labels, labels % 12, 20, 100, start=start)
        assert time.perf_counter() - began < 3


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"super_classes": 4, "classes_per_batch": 4},
            ValueError,
            "`super_classes` must not exceed the number of super-classes that have a class of 2 "
            "images or more. Received: super_classes=4, found=3",
        ),
        (
            {"classes_per_batch": 3},
            ValueError,
            "`super_classes` must divide `classes_per_batch`. Received: super_classes=2, "
            "classes_per_batch=3",
        ),
        ({"batch_size": 3}, ValueError, "`batch_size` must be >= 4. Received: batch_size=3"),
        (
            {"super_classes": 1},
            ValueError,
            "super-classes that have 2 classes of 2 images or more. Received: super_classes=1, "
            "found=0",
        ),
        ({"super_classes": 0}, ValueError, "`super_classes` must be >= 1"),
        ({"images_per_class": 1}, ValueError, "`images_per_class` must be >= 2"),
        ({"images_per_class": 2.0}, TypeError, "`images_per_class` must be an integer"),
        ({"evenly": "yes"}, TypeError, "`evenly` must be true or false. Received: evenly='yes'"),
        ({"seed": -1}, ValueError, "`seed` must be >= 0"),
        ({"start_step": 2**63}, ValueError, "`start_step` must be < 2**63"),
    ],
)
def test_groups_reject_what_cannot_be_drawn(options, error, message):
    labels, super_labels = nested([[2, 1], [3], [2], [1, 1]])
    arguments = {"super_labels": super_labels, "classes_per_batch": 2, "batch_size": 9, **options}
    with pytest.raises(error, match=re.escape(message)):
        group_indices(labels, **arguments)
