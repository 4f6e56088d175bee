"""What lies nearest to an embedding: the means of classes, or the images of a small gallery."""

import dataclasses
from collections import Counter

import numpy as np
import tensorflow as tf

from tfdml.checks import check

MOST_ROWS = 100_000


@dataclasses.dataclass(frozen=True)
class Gallery:
    """Images, or means of classes, to be found by their embeddings.

    Args:
        ids: (n,) texts that name the rows; of the means of classes the names of these.
        embeddings: (n, dim) floats, of at most 100,000 rows: they are searched one by one, and the
            distances of a batch to all of them are in the memory. More are for an index.
        classes: (n,) texts, the classes of the images; None for means of classes.

    Raises:
        ValueError: If there are no rows or too many, an id comes twice, or not each row has an id
            and finite numbers.
    """

    ids: list
    embeddings: np.ndarray
    classes: list | None = None

    def __post_init__(self):
        rows = np.asarray(self.embeddings, np.float32)
        object.__setattr__(self, "embeddings", rows)
        check(rows.ndim == 2, "`embeddings` must be (n, dim)", shape=rows.shape)
        check(
            0 < len(rows) <= MOST_ROWS,
            f"a gallery has from 1 to {MOST_ROWS:,} rows: for more, search an index",
            rows=len(rows),
        )
        for name in ("ids", "classes"):
            texts = getattr(self, name)
            check(
                texts is None or len(texts) == len(rows),
                f"`{name}` must have one text per row",
                rows=len(rows),
                **{name: texts if texts is None else len(texts)},
            )
        twice = [text for text, count in Counter(self.ids).items() if count > 1]
        check(not twice, "an id must be of one row", ids=twice[:3])
        check(np.isfinite(rows).all(), "`embeddings` must be finite", rows=_not_finite(rows))


def class_means(embeddings, labels, names):
    """The mean embedding of each class, to be found as the nearest.

    Means are as the embeddings give them: not scaled to unit length, as `evaluate.py --task ncm`
    takes them.

    Args:
        embeddings: (n, dim) floats.
        labels: (n,) integer ids.
        names: The name of each id in ascending order.

    Returns:
        A `Gallery` with the classes as its rows.

    Raises:
        ValueError: As of `Gallery`.
    """
    rows = np.unique(labels, return_inverse=True)[1]
    sums = np.zeros((len(names), np.shape(embeddings)[1]))
    np.add.at(sums, rows, embeddings)
    return Gallery(list(names), sums / np.bincount(rows, minlength=len(names))[:, None])


class Nearest(tf.Module):
    """The rows of a gallery that lie nearest to embeddings, in operations of TensorFlow.

    Args:
        gallery: `Gallery`.
        top: How many to find; all of a smaller gallery.

    Call:
        embeddings: (n, dim) floats.
        Returns `(distances, rows)`, (n, top) float32 and integers, the nearest first, of equal
            distances the earlier row. The distances are Euclidean, of differences; which rows are
            taken, among rows far from 0 that differ by less than the rounding of their squares,
            is open.
    """

    def __init__(self, gallery, top):
        super().__init__()
        self.top = min(top, len(gallery.ids))
        self._rows = tf.Variable(gallery.embeddings, trainable=False)
        self._squares = tf.Variable(np.square(gallery.embeddings).sum(axis=1), trainable=False)

    def __call__(self, embeddings):
        # The square of the embedding itself is the same for all rows.
        products = tf.matmul(embeddings, self._rows, transpose_b=True)
        rows = tf.math.top_k(2.0 * products - self._squares, self.top).indices
        distances = tf.norm(embeddings[:, None] - tf.gather(self._rows, rows), axis=2)
        order = tf.argsort(distances, axis=1, stable=True)
        return tuple(tf.gather(found, order, batch_dims=1) for found in (distances, rows))


def _not_finite(rows):
    return np.flatnonzero(~np.isfinite(rows).all(axis=1))[:3].tolist()
