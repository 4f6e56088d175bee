"""Nearest images of other classes, for batches of pairs."""

import numpy as np
import tensorflow as tf

from pipelines.sampling import ordered_by_class
from tfdml.checks import Bare, check, check_fits, check_integer, check_shapes, check_type
from tfdml.progress import progress

_BLOCK_BYTES = 2**25  # of float32 scores held at once
_BYTES_PER_PAIR = 40  # most that making the list of pairs takes


class HardNeighbours:
    """Nearest images of other classes for each image, by embeddings that training refreshes.

    Batches of steps s to s + `refresh_every` - 1 use the embeddings of step s, counted from the
    first step: call `refresh` at step s, before the first of them is taken, in `fit` through
    `tfdml.callbacks.EmbeddingsOfEpoch(images, neighbours.refresh)`. Taking a batch earlier, for
    example by a `prefetch` after the batches, raises an error.

    Args:
        labels: (n,) integer class ids, those of the split.
        batch_size: m, images of a batch; a multiple of 4.
        refresh_every: Steps from one refresh to the next, such as those of an epoch of `fit`.

    Raises:
        TypeError: If the labels or a number are not integers.
        ValueError: If `refresh_every` is below 1, m is not a multiple of 4, there are fewer than
            m - 2 images outside some class, or fewer positive pairs than a batch needs.

    Source:
        Song, Xiang, Jegelka, Savarese. Deep metric learning via lifted structured feature
        embedding. CVPR 2016, section 4: positive pairs at random, to which their difficult
        neighbours are added.
        Differs: the paper does not state how many, by which embeddings, or how often these are
        computed, and the released code adds none. Here each image of m / 4 pairs adds one, by
        embeddings of all images without augmentation, computed every `refresh_every` steps.
    """

    def __init__(self, labels, batch_size, refresh_every):
        check_integer(1, refresh_every=refresh_every)
        labels = np.asarray(labels)
        check_type(labels.dtype.kind in "iu", "`labels` must be integers", dtype=Bare(labels.dtype))
        check_shapes(labels.ndim == 1, "`labels` must be (n,) class ids", labels=labels)
        check_pairs(labels, batch_size, multiple_of=4)
        counts = np.unique(labels, return_counts=True)[1]
        check_enough(int(np.sum(counts * (counts - 1)) // 2), batch_size // 4)
        # When the last one is added, the batch may have m - 3 of its candidates already.
        others = len(labels) - int(counts.max())
        needed = "there must be at least `batch_size` - 2 images outside every class"
        check(others >= batch_size - 2, needed, batch_size=batch_size, others=others)
        self.labels, self.batch_size, self.refresh_every = labels, batch_size, refresh_every
        self._step, self._nearest = None, np.empty([0, 0], np.int32)

    def check_suits(self, labels, batch_size):
        """Raises a ValueError unless batches of these labels can use it."""
        suits = self.batch_size == batch_size and np.array_equal(self.labels, labels)
        expected = "`hard_neighbours` must have the labels of the split and this batch size"
        received = {"batch_size": batch_size, "hard_neighbours.batch_size": self.batch_size}
        check(suits, expected, **received)

    def refresh(self, step, embeddings):
        """Sets the embeddings that batches from a step on are made with.

        Shows a progress bar if the search takes more than two seconds.

        Args:
            step: Of the first of these batches: that of the first batch, or a multiple of
                `refresh_every` after it.
            embeddings: (n, dim) floats, one row per image; compared by Euclidean distance.

        Raises:
            ValueError: If they are not one row per image, or not finite.
        """
        embeddings = np.asarray(embeddings)
        matches = embeddings.ndim == 2 and len(embeddings) == len(self.labels)
        received = {"embeddings.shape": embeddings.shape, "images": len(self.labels)}
        check(matches, "`embeddings` must have one row per image", **received)
        if not np.isfinite(embeddings).all():
            raise ValueError("`embeddings` must be finite. Received: infinite numbers or NaN")
        self._nearest = nearest_of_other_classes(embeddings, self.labels, self.batch_size - 2)
        self._step = step

    def nearest(self, step, rows):
        """The (rows, m - 2) int32 of some rows; a RuntimeError if a step before was refreshed."""
        if self._step is None or not self._step <= step < self._step + self.refresh_every:
            needed = f"`refresh` must be called at step {step}, before its batch is taken"
            raise RuntimeError(f"{needed}. The last call was at step {self._step}")
        return self._nearest[rows]


def check_pairs(labels, batch_size, multiple_of):
    """Raises a TypeError or ValueError if batches of pairs cannot have this size."""
    check_integer(multiple_of, batch_size=batch_size)
    divides = batch_size % multiple_of == 0
    check(divides, f"`batch_size` must be a multiple of {multiple_of}", batch_size=batch_size)
    classes = len(np.unique(labels))
    check(classes >= 2, "negative pairs need 2 classes or more", classes=classes)


def check_enough(pairs, count):
    """Raises a ValueError if there are fewer pairs than a batch takes."""
    received = {"pairs": pairs, "of a batch": count}
    check(pairs >= count, "a batch must not take more pairs than there are", **received)


def positive_pairs(labels):
    """Every pair of two images of a class, once: (2, pairs) int32."""
    by_class, first, sizes = ordered_by_class(labels)
    number = int((sizes * (sizes - 1.0)).sum() / 2)
    check_fits(_BYTES_PER_PAIR * number, "all pairs of images of a class", pairs=number)
    following = np.repeat(first + sizes, sizes) - np.arange(len(labels)) - 1  # in the same class
    left = np.repeat(np.arange(len(labels)), following)
    right = np.arange(len(left)) - (np.cumsum(following) - following)[left] + left + 1
    by_class = by_class.astype(np.int32)
    return np.stack([by_class[left], by_class[right]])


def nearest_of_other_classes(embeddings, labels, count):
    """The `count` nearest rows of other classes for each row, nearest first, by exact search.

    Returns:
        (n, count) int32. Distances are computed in float32: of rows that it does not distinguish,
        the one with the lower index may come first.
    """
    classes = np.unique(labels, return_inverse=True)[1]
    # Centred, or rounding would swamp the distances of rows far from the origin.
    rows = (embeddings - np.mean(embeddings, axis=0, dtype=np.float64)).astype(np.float32)
    nearest = np.empty((len(rows), count), np.int32)
    block = max(1, _BLOCK_BYTES // (4 * len(rows)))
    blocks = progress("Finding hard neighbours", range(0, len(rows), block), unit="block")
    with tf.device("CPU:0"):  # on a GPU TensorFlow multiplies in lower precision
        rows, classes = tf.constant(rows), tf.constant(classes)
        half_norms = tf.reduce_sum(tf.square(rows), axis=1) / 2.0
        for first in blocks:
            some = slice(first, first + block)
            scores = tf.matmul(rows[some], rows, transpose_b=True) - half_norms
            scores = tf.where(classes[some, None] == classes, -np.inf, scores)
            nearest[some] = tf.math.top_k(scores, count).indices.numpy()
    return nearest
