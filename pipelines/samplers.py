"""Samplers by class: which rows of a `Split` a batch has, a function of (seed, step) alone."""

import dataclasses
import functools
from typing import Any

import numpy as np
import tensorflow as tf

from tfdml.checks import check, check_bool, check_integer
from tfdml.quiet import warn

_PURPOSES = ("classes", "images", "augmentation", "shares", "colour", "super_classes", "pairs")
_PURPOSES += ("symmetry", "duplicates")


@dataclasses.dataclass(frozen=True)
class Balanced:
    """P distinct classes with K distinct images each, the rows of a class in a row.

    Each epoch visits the classes once in a random order, P at a time (if P does not divide their
    number, the last few are left out); the K images of a class are drawn anew each time. A class
    with fewer than K images repeats them. It warns if no class has two images, but for K = 1.

    With K = 2 it is the sampler of the N-pair loss (Sohn, NIPS 2016), anchor and positive adjacent.

    Args:
        classes_per_batch: P, at most the number of classes.
        images_per_class: K.
    """

    classes_per_batch: int
    images_per_class: int

    def __post_init__(self):
        check_integer(1, **vars(self))

    @property
    def batch_size(self):
        return self.classes_per_batch * self.images_per_class

    def indices(self, split, seed, step):
        by_class, first, counts = rows_by_class(split, least=1)
        wanted, classes = self.classes_per_batch, len(counts)
        needed = "`classes_per_batch` must not exceed the number of classes"
        check(wanted <= classes, needed, classes_per_batch=wanted, classes=classes)
        if self.images_per_class > 1:
            warn_of_single_images(counts)
        by_class, first, counts = (constant(part, tf.int64) for part in (by_class, first, counts))
        epoch, place = _epoch_and_place(step, classes // wanted)
        order = _shuffled(classes, step_seed(seed, "classes", epoch))
        chosen = order[place * wanted :][:wanted]
        sizes = tf.gather(counts, chosen)
        largest = tf.reduce_max(sizes)
        keys = tf.random.stateless_uniform([wanted, largest], step_seed(seed, "images", step))
        present = tf.range(largest)[None, :] < sizes[:, None]
        drawn = tf.argsort(tf.where(present, keys, 2.0), axis=1)  # padding comes last
        shares = self.shares(seed, step)
        ends = tf.cumsum(shares)
        position = tf.range(self.batch_size, dtype=tf.int64)
        owner = tf.searchsorted(ends, position, side="right", out_type=tf.int64)
        turn = (position - tf.gather(ends - shares, owner)) % tf.gather(sizes, owner)
        within = tf.gather_nd(drawn, tf.stack([owner, turn], axis=1))
        rows = tf.gather(first, tf.gather(chosen, owner)) + tf.cast(within, tf.int64)
        return tf.ensure_shape(tf.gather(by_class, rows), [self.batch_size])

    def shares(self, seed, step):
        """Images drawn of each class, (P,) int64."""
        del seed, step  # those of a subclass may depend on them
        return tf.fill([self.classes_per_batch], tf.constant(self.images_per_class, tf.int64))


@dataclasses.dataclass(frozen=True)
class Mixed(Balanced):
    """As `Balanced`, but K to 2 K images, uniformly, of one of the P classes after the other.

    This until the batch has P × K. The last class takes what is left; if that is less than K, it
    goes to the class before. Two classes have K images each, as otherwise a batch would have no
    negatives.
    """

    def shares(self, seed, step):
        least = super().shares(seed, step)
        if self.classes_per_batch <= 2:
            return least
        most, drawn = self.images_per_class + 1, step_seed(seed, "shares", step)
        wanted = tf.random.stateless_uniform(least.shape, drawn, 0, most, tf.int64) + least
        left = tf.maximum(self.batch_size - tf.cumsum(wanted, exclusive=True), 0)
        shares = tf.where(left - wanted < least, left, wanted)
        return tf.where(left < least, tf.zeros_like(shares), shares)


@dataclasses.dataclass(frozen=True)
class Groups:
    """Related classes: all images of some classes of few super-classes, hard negatives.

    Each batch draws G super-classes and P / G classes of each (all if it has fewer), both without
    replacement, and takes all their images. If these exceed the batch size, images are dropped at
    random, and then classes with a single image left; if that leaves one class of several, two
    images each of two classes are kept instead. So a batch has 2 images or more of a class, in a
    row, and two classes or more if P > 1.

    Args:
        classes_per_batch: P; G must divide it.
        batch_size: Most images of a batch; above P, and with P > 1 at least 4.
        super_classes: G, at most the number of super-classes that have a class of 2 images, with
            G = 1 < P two such classes.
        images_per_class: Most images of a class, drawn at random, >= 2; all if None.
        evenly: Whether all super-classes, and all classes of one, are equally likely; if not, they
            are drawn one by one from those left, in proportion to their images.

    Source:
        Yuan, Yang, Zhang. Hard-aware deeply cascaded embedding. ICCV 2017, and its released code:
        10 classes each of 2 super-classes, 100 images; evenly for In-shop Clothes and, with 5
        images of a class, for VehicleID.
        Differs: batches of that code begin and end anywhere in a group.
    """

    classes_per_batch: int
    batch_size: int
    super_classes: int = 2
    images_per_class: int | None = None
    evenly: bool = False

    def __post_init__(self):
        received = {name: vars(self)[name] for name in ("super_classes", "classes_per_batch")}
        check_integer(1, **received)
        least = 4 if self.classes_per_batch == 2 else self.classes_per_batch + 1
        check_integer(least, batch_size=self.batch_size)
        if self.images_per_class is not None:
            check_integer(2, images_per_class=self.images_per_class)
        check_bool(evenly=self.evenly)
        divides = self.classes_per_batch % self.super_classes == 0
        check(divides, "`super_classes` must divide `classes_per_batch`", **received)

    def indices(self, split, seed, step):
        split.check_super_labels()
        by_class, first, counts = rows_by_class(split)
        super_labels = split.super_labels[by_class[first]]
        order = np.argsort(super_labels, kind="stable")  # classes by their super-classes
        first, counts = first[order], counts[order]
        _, starts, inverse, sizes = np.unique(
            super_labels[order], return_index=True, return_inverse=True, return_counts=True
        )
        totals = np.bincount(inverse, counts).astype(np.int32)
        groups = (starts.astype(np.int32), sizes.astype(np.int32), totals, self._usable(sizes))
        first, counts = constant(first), constant(counts)
        classes = self._classes(counts, map(constant, groups), seed, step)
        owner, turn, rows = _rows_of_classes(classes, first, counts)
        image_seed = step_seed(seed, "images", step)
        keys = tf.random.stateless_uniform([2, tf.size(owner)], image_seed, dtype=tf.float64)
        # Classes stay adjacent, each shuffled within; then images of high ranks are dropped.
        places = tf.argsort(tf.cast(owner, tf.float64) + keys[0])
        most = self.images_per_class or tf.reduce_max(counts)
        owner, turn, places, ranks = (
            tf.boolean_mask(each, turn < most) for each in (owner, turn, places, keys[1])
        )

        def fitting(ranks):
            lowest = tf.sort(tf.argsort(ranks)[: self.batch_size])
            classes = tf.gather(owner, lowest)
            return tf.boolean_mask(lowest, tf.gather(tf.math.bincount(classes), classes) > 1)

        kept = fitting(ranks)
        single = (owner[kept[0]] == owner[kept[-1]]) & (owner[-1] > 0)
        kept = fitting(ranks - tf.cast(single & (owner < 2) & (turn < 2), ranks.dtype))
        return tf.gather(constant(by_class), tf.gather(rows, tf.gather(places, kept)))

    def _usable(self, sizes):
        """Which super-classes, of so many classes of 2 images, can be drawn."""
        one_of_several = self.super_classes == 1 < self.classes_per_batch
        usable = sizes >= (2 if one_of_several else 1)
        wanted, found = self.super_classes, int(np.count_nonzero(usable))
        needed = "`super_classes` must not exceed the number of super-classes that have "
        needed += f"{'2 classes' if one_of_several else 'a class'} of 2 images or more"
        check(wanted <= found, needed, super_classes=wanted, found=found)
        return usable

    def _classes(self, counts, groups, seed, step):
        """The classes drawn of super-classes, by first class, classes, images and usability."""
        starts, sizes, totals, usable = groups
        weights = tf.where(usable, tf.ones_like(totals) if self.evenly else totals, 0)
        drawn = step_seed(seed, "super_classes", step)
        chosen = _draw(weights[None], self.super_classes, drawn)[0]
        widths = tf.gather(sizes, chosen)[:, None]
        place = tf.range(tf.reduce_max(widths))[None]
        members = tf.where(place < widths, tf.gather(starts, chosen)[:, None] + place, 0)
        weights = tf.ones_like(members) if self.evenly else tf.gather(counts, members)
        weights = tf.where(place < widths, weights, 0)
        share = self.classes_per_batch // self.super_classes
        columns = _draw(weights, share, step_seed(seed, "classes", step))
        there = tf.gather(weights, columns, batch_dims=1) > 0
        return tf.boolean_mask(tf.gather(members, columns, batch_dims=1), there)


@dataclasses.dataclass(frozen=True)
class WholeClasses:
    """All images of random classes, as many as fit.

    Each epoch visits the classes of two images or more in a random order, each at most once. A
    batch takes whole classes while they fit and fills the remaining places with random images of
    the next class, but leaves a single place empty: it has m or m - 1 images, the rows of a class
    in a row; all images if they do not fill one batch. With n images and a largest class of k an
    epoch has n / (m - 2 + k) batches, rounded down; the remaining classes are left out.

    Args:
        batch_size: Most images of a batch, m, >= 4; at least the size of the largest class + 2, so
            that every batch has negatives.

    Source:
        Li, Yao, Chao, Chen, Mei. Density adaptivity in deep metric learning. 2019, section IV-A:
        all images of randomly sampled classes until the batch of 100 is full.
        Differs: in what the paper leaves open, such as what becomes of a class that does not fit.
    """

    batch_size: int

    def __post_init__(self):
        check_integer(4, batch_size=self.batch_size)

    def indices(self, split, seed, step):
        by_class, first, counts = rows_by_class(split)
        needed = "batches of whole classes need 2 or more classes with 2 or more images"
        check(len(counts) >= 2, needed, classes=len(counts))
        size, largest = self.batch_size, int(counts.max())
        needed = "`batch_size` must be at least the size of the largest class + 2, so that every"
        needed = f"{needed} batch has 2 classes"
        check(size >= largest + 2, needed, batch_size=size, largest=largest)
        # A batch uses up at most m - 2 images and one class that fills the 2 remaining places.
        batches_per_epoch = max(1, int(counts.sum()) // (size - 2 + largest))

        @functools.lru_cache(maxsize=2)  # of neighbouring epochs
        def planned(epoch):
            """The order of the classes, and where batches begin in it, and the last one ends."""
            order = _shuffled(len(counts), step_seed(seed, "classes", epoch)).numpy()
            ends, begins = np.cumsum(counts[order]), [0]
            for _ in range(batches_per_epoch):
                used = ends[begins[-1] - 1] if begins[-1] else 0
                fitting = int(np.searchsorted(ends, used + size, side="right"))
                room = size - (ends[fitting - 1] - used)
                begins.append(min(fitting + int(room >= 2), len(ends)))
            return order, begins

        def drawn(step):
            epoch, place = divmod(int(step), batches_per_epoch)
            order, begins = planned(epoch)
            return order[begins[place] : begins[place + 1]]

        classes = tf.numpy_function(drawn, [step], tf.int32)
        classes = tf.ensure_shape(classes, [None])
        owner, _, rows = _rows_of_classes(classes, constant(first), constant(counts))
        image_seed = step_seed(seed, "images", step)
        keys = tf.random.stateless_uniform(tf.shape(owner), image_seed, dtype=tf.float64)
        places = tf.argsort(tf.cast(owner, tf.float64) + keys)[:size]  # by class
        return tf.gather(constant(by_class), tf.gather(rows, places))


@dataclasses.dataclass(frozen=True)
class Shuffled:
    """Images in a random order, each at most once an epoch, whatever its class.

    For losses over proxies of classes: a batch of few of many classes may have no positive pair. An
    epoch has n / m batches, rounded down: the n mod m images that are left are other ones in each
    epoch. Images may have several labels.

    Args:
        batch_size: m, images of a batch; at most n, those of the split.
    """

    batch_size: int

    def __post_init__(self):
        check_integer(1, batch_size=self.batch_size)

    def indices(self, split, seed, step):
        size, images = self.batch_size, len(split.labels)
        expectation = "`batch_size` must not exceed the number of images"
        check(size <= images, expectation, batch_size=size, images=images)
        return in_turn(images, size, seed, step, "images")


@dataclasses.dataclass(frozen=True, eq=False)
class DistinctPictures:
    """Rows that another sampler draws, but two images of one picture never in one batch.

    The sampler draws pictures, of each of which a random image at that step stands for it. Classes
    of fewer pictures than the sampler wants of a class repeat a picture by the same image.

    Args:
        sampler: Of the pictures: a split with an image of each.
        pictures: (n,) integers, the same for images of one class that are one picture, such as
            `pipelines.pictures_of` finds.
    """

    sampler: Any
    pictures: Any

    @property
    def batch_size(self):
        return self.sampler.batch_size

    @property
    def refresh_every(self):
        return getattr(self.sampler, "refresh_every", None)

    def indices(self, split, seed, step):
        rows = self.sampler.indices(first_of_each(self.pictures, split), seed, step)
        by_picture, first, counts = map(constant, ordered_by_class(self.pictures))
        draws = tf.random.stateless_uniform(counts.shape, step_seed(seed, "duplicates", step))
        turn = tf.cast(draws * tf.cast(counts, tf.float32), tf.int32)  # the same where a row is
        return tf.gather(by_picture, tf.gather(first + tf.minimum(turn, counts - 1), rows))


def first_of_each(pictures, split):
    """The split of the first image of each picture, of which `DistinctPictures` draws."""
    expectation = "`pictures` must have one number per image"
    shape = np.shape(pictures)
    check(shape == split.labels.shape[:1], expectation, images=len(split.labels), shape=shape)
    by_picture, first, _ = ordered_by_class(pictures)
    return split.subset(by_picture[first])


def constant(array, dtype=None):
    """An array as a constant beside the graph, which would hold it several times, on the CPU."""
    with tf.init_scope(), tf.device("CPU:0"):
        return tf.constant(array, dtype)


def in_turn(total, count, seed, step, purpose):
    """The `count` of `total` numbers whose turn it is, shuffled each epoch for a purpose if any."""
    epoch, place = _epoch_and_place(step, total // count)
    places = place * count + tf.range(count, dtype=tf.int64)
    if not purpose:
        return places
    epoch_seed = step_seed(seed, purpose, epoch)
    return tf.random.experimental.index_shuffle(places, epoch_seed, total - 1)


def _epoch_and_place(step, count):
    """The epoch of so many steps that a step is in, and its place in it: two () int64."""
    step = tf.cast(step, tf.int64)
    return step // count, step % count


def _shuffled(count, seed):
    return tf.random.experimental.stateless_shuffle(tf.range(count), seed)


def rows_by_class(split, least=2):
    """As `ordered_by_class`, of the classes of a split that have `least` images or more."""
    split.check_one_label("images to sample by their classes")
    by_class, first, counts = ordered_by_class(split.labels)
    return by_class, first[counts >= least], counts[counts >= least]


def ordered_by_class(labels):
    """Rows sorted by class, (n,) int64; first row and number of rows of each class, int32."""
    by_class = np.argsort(labels, kind="stable")
    _, first, counts = np.unique(labels[by_class], return_index=True, return_counts=True)
    return by_class, first.astype(np.int32), counts.astype(np.int32)


def _rows_of_classes(classes, first, counts):
    """All rows of some classes, with the place of each one's class and its own in the class."""
    sizes = tf.gather(counts, classes)
    ends, position = tf.cumsum(sizes), tf.range(tf.reduce_sum(sizes))
    owner = tf.searchsorted(ends, position, side="right")  # far fewer operations than `tf.repeat`
    turn = position - tf.gather(ends - sizes, owner)
    return owner, turn, tf.gather(first, tf.gather(classes, owner)) + turn


def _draw(weights, count, seed):
    """Draws columns of each row without replacement, in proportion to weights; those of 0 last."""
    # The shortest of exponential waiting times is each one with odds of its rate.
    waits = -tf.math.log1p(-tf.random.stateless_uniform(tf.shape(weights), seed))
    waits = tf.where(weights > 0, waits / tf.cast(weights, tf.float32), np.inf)
    return tf.math.top_k(-waits, tf.minimum(count, tf.shape(weights)[1])).indices


def warn_of_single_images(counts):
    """Warns if no class has two images, so that positive pairs are of an image with itself."""
    if np.max(counts) < 2:
        warn(
            "no class has 2 images or more: every positive pair is an image with itself, which "
            f"random augmentation alone makes differ. Received: classes={len(counts)}"
        )


def step_seed(seed, purpose, step):
    """(2,) int64 seed of one purpose at one step, for the stateless operations of TensorFlow."""
    base = tf.constant([seed, _PURPOSES.index(purpose)], tf.int64)
    return tf.random.fold_in(base, tf.cast(step, tf.int64))
