"""Nearest neighbours of embeddings: class means, or images of a small gallery."""

import dataclasses
import pathlib
from collections import Counter

import keras
import numpy as np
import tensorflow as tf

from tfdml.checks import Bare, check
from tfdml.evaluation import nearest_mean
from tfdml.images.image_files import class_folders, is_image, is_utf8

MOST_ROWS = 100_000


@dataclasses.dataclass(frozen=True)
class Gallery:
    """Embeddings of images or class means, to be searched by nearest neighbours.

    Args:
        ids: (n,) texts that name the rows; for class means the names of the classes.
        embeddings: (n, dim) floats, at most 100,000 rows: the search is exhaustive and holds the
            distances of a batch to all of them in memory. Use an index for more.
        classes: (n,) texts, the classes of the images; None for class means.

    Raises:
        ValueError: If there are no rows or too many, an id occurs twice, a row has no id, or an
            embedding is not finite.
    """

    ids: list
    embeddings: np.ndarray
    classes: list | None = None

    def __post_init__(self):
        rows = checked_rows(self.embeddings)
        object.__setattr__(self, "embeddings", rows)
        for name, texts in (("ids", self.ids), ("classes", self.classes)):
            count = len(rows) if texts is None else len(texts)
            expected = f"`{name}` must have one text per row"
            check(count == len(rows), expected, rows=len(rows), **{name: count})
        twice = [text for text, count in Counter(self.ids).items() if count > 1]
        check(not twice, "`ids` must be unique", ids=twice[:3])


def check_rows(count):
    """Raises a ValueError unless a `Gallery` can have as many rows."""
    expected = f"a gallery has from 1 to {MOST_ROWS:,} rows; use an index for more"
    check(0 < count <= MOST_ROWS, expected, rows=count)


def checked_rows(embeddings):
    """The (n, dim) rows to search as float32; a ValueError if these are too many or not finite."""
    rows = np.asarray(embeddings, np.float32)
    check(rows.ndim == 2, "`embeddings` must be (n, dim)", shape=rows.shape)
    check_rows(len(rows))
    infinite = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    check(not infinite.size, "`embeddings` must be finite", rows=infinite[:3].tolist())
    return rows


def class_means(embeddings, labels, names):
    """The mean embedding of each class, for nearest-class-mean classification.

    Means are not scaled to unit length, as in `evaluate.py ncm`.

    Args:
        embeddings: (n, dim) floats.
        labels: (n,) integer ids or names.
        names: The name of each label in ascending order.

    Returns:
        A `Gallery` with the classes as its rows.

    Raises:
        ValueError: As for `Gallery`.
    """
    rows = np.unique(labels, return_inverse=True)[1]
    return Gallery(list(names), nearest_mean.class_means(embeddings, rows)[1])


def means_of_folder(served, folder):
    """The mean embedding of each class of a folder, as a `Gallery`, by a `ServedModel`."""
    paths, classes = images_of(folder)
    return class_means(served.embed_files(paths), classes, sorted(set(classes)))


def gallery_of_folder(served, folder):
    """The `Gallery` of the images of a folder; their ids are their paths relative to it."""
    paths, classes = images_of(folder)
    check_rows(len(paths))  # before embedding, which takes long
    ids = [path.relative_to(folder).as_posix() for path in paths]
    return Gallery(ids, served.embed_files(paths), classes)


def images_of(folder):
    """`(paths, classes)` of the images in the sub-folders of a folder, in sorted order."""
    folder = pathlib.Path(folder)
    listed = class_folders(folder) if folder.is_dir() else {}
    paths = [
        path for inner in listed.values() for path in inner if is_image(path) and path.is_file()
    ]
    check(paths, "a folder must have sub-folders of images, one per class", folder=str(folder))
    wrong = next((path for path in paths if not is_utf8(str(path))), None)
    check(wrong is None, "names of images must be UTF-8", path=Bare(f"{str(wrong)!a}"))
    return paths, [path.parent.name for path in paths]


class Nearest(keras.layers.Layer):
    """Exhaustive nearest-neighbour search in (n, dim) float32 rows, in TensorFlow operations.

    Gives the Euclidean distances and rows of the `top` nearest, (n, top), nearest first, ties by
    row. Candidates are chosen by the float32 scores `2 a·b - |b|²`: rows far from 0 that are closer
    together than the rounding of these scores may be confused.
    """

    def __init__(self, rows, top):
        super().__init__(trainable=False, dtype="float32")
        self.top = min(top, len(rows))
        self._rows = self.add_weight(shape=rows.shape, trainable=False)
        self._squares = self.add_weight(shape=rows.shape[:1], trainable=False)
        self.set_weights([rows, np.square(rows).sum(axis=1)])

    def call(self, embeddings):
        # The squared norm of the embedding is the same for all rows, and left out.
        products = tf.matmul(embeddings, self._rows.value, transpose_b=True)
        rows = tf.math.top_k(2.0 * products - self._squares.value, self.top).indices
        distances = tf.norm(embeddings[:, None] - tf.gather(self._rows.value, rows), axis=2)
        order = tf.argsort(distances, axis=1, stable=True)
        return tuple(tf.gather(found, order, batch_dims=1) for found in (distances, rows))
