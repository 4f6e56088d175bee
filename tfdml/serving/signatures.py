"""The signatures of an exported model."""

import pathlib
from typing import Any

import numpy as np
import tensorflow as tf

from tfdml import pairwise
from tfdml.checks import check, check_integer, check_keras
from tfdml.progress import progress
from tfdml.serving.exported import fingerprint
from tfdml.serving.metadata import metadata_of, write_metadata
from tfdml.serving.nearest import Nearest
from tfdml.serving.options import ExportOptions
from tfdml.serving.reading import read_batch, reject_unreadable
from tfdml.serving.versions import new_version
from tfdml.serving.warmup import write_warmup
from tfdml.serving.weights import StoredWeights

_BATCH = 32  # files embedded at once
ENCODED = [tf.TensorSpec([None], tf.string, "image_bytes")]
PAIRS_ENCODED = [tf.TensorSpec([None], tf.string, f"image_bytes_{side}") for side in "ab"]


class ServedModel:
    """An embedder with its signatures, ready to be written.

    `signatures` are compiled functions, by the names that `export_model` documents. They compute
    the same as the written version, with its precision, for example to fill a gallery.

    Args:
        embedder: A functional `keras.Model` from images to embeddings.
        read_image: From a scalar string to one float32 image, as for `export_model`.
        loss: The loss that the embedder was trained with, or None.
        options: `ExportOptions`; the defaults if None.
    """

    def __init__(self, embedder, read_image, loss: Any = None, *, options=None):
        check_keras("backend")
        self.options = options or ExportOptions()
        self.image_shape, self.dim = embedder.input_shape[1:], embedder.output_shape[-1]
        self.options.check_size(self.image_shape)
        learned = getattr(loss, "similarity_layer", None) is not None
        layers = [embedder, loss.similarity_layer] if learned else [embedder]
        weights = StoredWeights(layers, self.options.precision)
        self._of_version = tf.Module()  # what is written, instead of the embedder
        self._of_version.weights = weights.stored
        # A later export of this version reads images with the same function.
        self._of_version.read_image = compiled(read_image, [tf.TensorSpec([], tf.string)])
        self.embedder, self._weights = embedder, weights
        self._loss: Any = loss if learned else None
        self.top = {}  # signature -> rows that it returns
        # Each is traced once, even if several others call it.
        images = tf.TensorSpec([None, *self.image_shape], name="images")
        self._embed_images = compiled(self._embed, [images])
        self._read = compiled(self._read_batch, ENCODED)
        self.signatures = {
            "serving_default": self._from_bytes(self._embed_images),
            "embed_images": self._embed_images,
            "read_images": self._from_bytes(lambda images: {"images": images}),
            "similarity": compiled(self._similarity, PAIRS_ENCODED),
        }
        if learned:
            rows = [tf.TensorSpec([None, self.dim], name=f"embeddings_{side}") for side in "ab"]
            self.signatures["score_pairs"] = compiled(self._score_pairs, rows)
            self.signatures["score_matrix"] = compiled(self._score_matrix, rows)

    def add_classes(self, means, *, top):
        """Adds the signature `classify`.

        Args:
            means: `Gallery` of class means.
            top: Number of classes to return.
        """
        self._add("classify", means, top, {"classes": means.ids})

    def add_gallery(self, gallery, *, top):
        """Adds the signature `neighbours`.

        Args:
            gallery: `Gallery` of images.
            top: Number of images to return.
        """
        classes = {} if gallery.classes is None else {"classes": gallery.classes}
        self._add("neighbours", gallery, top, {"ids": gallery.ids, **classes})

    def embed_files(self, paths):
        """The embeddings of image files; shows a progress bar if that takes more than two seconds.

        Args:
            paths: List of paths.

        Returns:
            (n, dim) float32.

        Raises:
            ValueError: If a file cannot be read as an image; names it.
        """
        rows = []
        for first in progress("Embedding", range(0, len(paths), _BATCH), unit="batch"):
            batch = paths[first : first + _BATCH]
            images, problems = self._read(tf.constant([path.read_bytes() for path in batch]))
            for path, problem in zip(batch, problems.numpy(), strict=True):
                if problem:
                    raise ValueError(f"{path} {problem.decode()}")
            rows.append(self._embed_images(images)["embedding"])
        return np.concatenate(rows)

    def write(self, path, *, assets=None, metadata=None):
        """Writes a version, as `export_model` does.

        Args:
            path: The version's folder; must not exist.
            assets: File name -> text or bytes, for its `assets.extra`.
            metadata: {name: value} of the training, as for `metadata_of`.

        Returns:
            The path of the version.

        Raises:
            FileExistsError: If the version exists.
        """
        path = pathlib.Path(path)
        with new_version(path) as unfinished:
            # Traced here: while it saves, TensorFlow would trace each once more.
            functions = {name: f.get_concrete_function() for name, f in self.signatures.items()}
            tf.saved_model.save(self._of_version, str(unfinished), functions)
            extra = unfinished / "assets.extra"
            extra.mkdir()
            write_warmup(extra, functions, path.parent.name, self.image_shape)
            known = metadata_of(self, **(metadata or {}))
            write_metadata(extra, {**known, "fingerprint": fingerprint(unfinished)})
            for name, content in (assets or {}).items():
                content = content.encode() if isinstance(content, str) else content
                (extra / name).write_bytes(content)
        return path

    def _embed(self, images):
        with self._weights.in_place():
            return {"embedding": tf.cast(self.embedder(images, training=False), tf.float32)}

    def _read_batch(self, image_bytes):
        read_image, most = self._of_version.read_image, self.options.max_pixels
        return read_batch(image_bytes, read_image, self.image_shape, most)

    def _from_bytes(self, function):
        """A signature that reads images and applies a function to them."""

        def from_bytes(image_bytes):
            images, problems = self._read(image_bytes)
            return self._of_readable(lambda: function(images), image_bytes=problems)

        return compiled(from_bytes, ENCODED)

    def _of_readable(self, function, **problems):
        """The outputs of a function, with NaN or an error for unreadable images by `on_bad_image`.

        Args:
            function: Takes no arguments, returns {name: (n, ...)}.
            **problems: (n,) texts for each input.
        """
        if self.options.on_bad_image == "error":
            rejections = [reject_unreadable(texts, name) for name, texts in problems.items()]
            with tf.control_dependencies(rejections):
                return {name: tf.identity(values) for name, values in function().items()}
        valid = tf.reduce_all([tf.equal(texts, "") for texts in problems.values()], axis=0)
        return {**{name: blank(v, valid) for name, v in function().items()}, "valid": valid}

    def _similarity(self, image_bytes_a, image_bytes_b):
        rows = tf.size(image_bytes_a)
        with tf.control_dependencies([reject_without_partner(image_bytes_a, image_bytes_b)]):
            images, problems = self._read(tf.concat([image_bytes_a, image_bytes_b], axis=0))

        def scores():
            embeddings = self._embed_images(images)["embedding"]
            return self._score_pairs(embeddings[:rows], embeddings[rows:])

        of_inputs = {"image_bytes_a": problems[:rows], "image_bytes_b": problems[rows:]}
        return self._of_readable(scores, **of_inputs)

    def _score_pairs(self, embeddings_a, embeddings_b):
        # Otherwise another operation may fail first.
        with tf.control_dependencies([reject_without_partner(embeddings_a, embeddings_b)]):
            a, b = tf.identity(embeddings_a), tf.identity(embeddings_b)
        if self._loss is None:
            return {"similarity": tf.reduce_sum(pairwise.normalize(a) * pairwise.normalize(b), 1)}
        with self._weights.in_place():
            return {"similarity": self._loss.similarity(a, b)}

    def _score_matrix(self, embeddings_a, embeddings_b):
        rows = [embeddings_a, embeddings_b]
        if self._loss.normalize:
            rows = map(pairwise.normalize, rows)
        with self._weights.in_place():
            return {"similarity": self._loss.similarity_layer.matrix(*rows)}

    def _add(self, name, gallery, top, texts):
        check_integer(1, top=top)
        width = gallery.embeddings.shape[1]
        expected = "a gallery must have embeddings of the length of this model's"
        check(width == self.dim, expected, dim=self.dim, embeddings=width)
        nearest = Nearest(gallery, top)
        setattr(self._of_version, name, nearest)
        self.top[name] = nearest.top

        def found(images):
            distances, rows = nearest(self._embed_images(images)["embedding"])
            names = {key: tf.gather(tf.constant(values), rows) for key, values in texts.items()}
            return {**names, "distances": distances}

        self.signatures[name] = self._from_bytes(found)


def compiled(function, signature):
    return tf.function(function, input_signature=signature, autograph=False)


def blank(values, valid):
    """The values with NaN, or an empty text, in the rows that are not valid."""
    valid = tf.reshape(valid, [-1, *[1] * (values.shape.rank - 1)])
    return tf.where(valid, values, "" if values.dtype == tf.string else float("nan"))


def reject_without_partner(a, b):
    """Returns an operation that fails unless a and b have the same number of rows."""
    message = "a and b must have the same number of rows"
    return tf.debugging.assert_equal(tf.shape(a)[0], tf.shape(b)[0], message)
