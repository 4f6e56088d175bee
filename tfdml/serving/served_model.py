"""Exports an embedder with signatures that read encoded images."""

import dataclasses
import pathlib
import warnings
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfdml
from tfdml import pairwise
from tfdml.checks import check, check_integer, check_keras, check_options, check_type
from tfdml.images.decoding import decode, resize
from tfdml.images.image_headers import read_image as read_file
from tfdml.models import EmbeddingModel, number_of_levels
from tfdml.quiet import progress
from tfdml.serving import runtimes
from tfdml.serving.decision import Decision
from tfdml.serving.exported import fingerprint
from tfdml.serving.metadata import TRAINING, without_folders, write_metadata
from tfdml.serving.nearest import Nearest
from tfdml.serving.options import TOP, ExportOptions
from tfdml.serving.reading import read_batch, reject_unreadable
from tfdml.serving.versions import new_version
from tfdml.serving.warmup import write_warmup
from tfdml.serving.weights import StoredWeights

_BATCH = 32  # files embedded at once
ENCODED = [tf.TensorSpec([None], tf.string, "image_bytes")]
PAIRS_ENCODED = [tf.TensorSpec([None], tf.string, f"image_bytes_{side}") for side in "ab"]


def export_model(
    model,
    path,
    read_image=None,
    loss=None,
    assets=None,
    *,
    options=None,
    format=None,
    images=None,
    classes=None,
    gallery=None,
    decision=None,
    top=TOP,
    metadata=None,
):
    """Writes a SavedModel that TF Serving loads unchanged.

    Signatures; those of pairs compare row i of a with row i of b unless stated otherwise:
        serving_default: `image_bytes` (n,) encoded images -> `embedding` (n, dim) float32.
        embed_images: `images` (n, height, width, channels) float32 in [0, 255] -> `embedding`.
        read_images: `image_bytes` (n,) -> `images`, what `embed_images` takes.
        similarity: `image_bytes_a` (n,) and `image_bytes_b` (n,) -> `similarity` (n,) float32, the
            score that the loss learned, otherwise the cosine.
        score_pairs: `embeddings_a` (n, dim) and `embeddings_b` (n, dim) -> `similarity` (n,), the
            learned score. Only if there is one.
        score_matrix: `embeddings_a` (n, dim) and `embeddings_b` (m, dim) -> `similarity` (n, m),
            the learned score of all rows of a against all of b. Only if there is one.
        classify: `image_bytes` (n,) -> `classes` (n, top), the names of the classes with the
            nearest means, nearest first, and `distances` (n, top) float32, Euclidean. Only with
            `classes`.
        neighbours: `image_bytes` (n,) -> `ids`, `classes` and `distances` (n, top) of the nearest
            images of the gallery, nearest first. Only with `gallery`.
        decide: `embeddings` (n, dim) -> (n,) each: `class`, the name of the class, `class_id`, its
            place in the metadata, `score` and `probability` float32, and `known`, whether it is of
            that class or of none. Only with `decision`, with which `classify` and `neighbours`
            return these too.

    The images of a batch may differ in format and size. An unreadable image fails its request with
    an error that gives its row and the reason. With `on_bad_image="nan"` its numbers are NaN, its
    texts empty, and every signature that takes `image_bytes` has an output `valid`, (n,) booleans.
    `tfdml.images.decoding.decode` documents which images the default `read_image` rejects.

    The folder appears whole or not at all. Its `assets.extra` holds `metadata.json`, described in
    `tfdml.serving.metadata`, and a warm-up request for each signature.

    Args:
        model: A `tfdml.EmbeddingModel`, or its embedder: a functional or sequential `keras.Model`
            from images to embeddings. Embeddings are float32 under any policy.
        path: The version's folder, such as `saved_models/NAME/1`; must not exist.
        read_image: The preprocessing of training: from a scalar string tensor of encoded bytes to
            one (height, width, channels) float32 image in [0, 255], in TensorFlow operations. If
            None, images are decoded as in `pipelines` and resized to the input of the model.
        loss: The loss that the embedder was trained with; that of an `EmbeddingModel` if None. Its
            learned similarity, if any, is served without dropout.
        assets: File name -> text or bytes, written to the version's `assets.extra`.
        options: `tfdml.serving.ExportOptions`; the defaults if None.
        format: `onnx`, `litert` or `openvino`, or several joined by commas, instead of that of the
            options: further files in the version, for other runtimes. See `ExportOptions`.
        images: (n, height, width, channels) floats in [0, 255], of which up to 64 verify that these
            files compute what Keras does; noise if None.
        classes: `tfdml.serving.Gallery` of class means, such as those of `class_means`, by
            embeddings of the same model.
        gallery: `tfdml.serving.Gallery` of at most 100,000 images.
        decision: `tfdml.evaluation.OpenSetDecision`, of embeddings of the same model.
        top: Number of classes or images to return; all if there are fewer.
        metadata: {name: value} of the training: the last five that `tfdml.serving.metadata`
            lists.

    Returns:
        The path of the version.

    Raises:
        FileExistsError: If the version exists.
        TypeError: If `model` is not a `keras.Model`.
        ValueError: If `model` has no fixed image size, its output is not (batch, dim), a gallery
            has embeddings of another length, `top` is below 1, a runtime of `format` is not
            installed, or a file of it computes other numbers than Keras.
    """
    if not pathlib.Path(path).name.isdigit():
        warnings.warn(
            f"TF Serving reads versions from folders that are numbers, not {str(path)!r}",
            stacklevel=2,
        )
    options = options or ExportOptions()
    if format is not None:
        options = dataclasses.replace(options, format=format)
    embedder = model
    if isinstance(model, EmbeddingModel):
        embedder, loss = model.embedder, loss or model.loss
    _check_embedder(embedder)
    if read_image is None:
        size = embedder.input_shape[1:]
        read_image = lambda contents: resize(decode(contents, size[2]), size)  # noqa: E731
    served = ServedModel(embedder, read_image, loss, options=options)
    if decision is not None:
        served.add_decision(decision)
    if classes is not None:
        served.add_classes(classes, top=top)
    if gallery is not None:
        served.add_gallery(gallery, top=top)
    return served.write(path, assets=assets, metadata=metadata, images=images)


def _check_embedder(embedder):
    expected = "`model` must be a tfdml.EmbeddingModel or a keras.Model"
    check_type(isinstance(embedder, keras.Model), expected, model=embedder)
    shapes = {name: getattr(embedder, name, None) for name in ("input_shape", "output_shape")}
    image, rows = (shape if isinstance(shape, tuple) else () for shape in shapes.values())
    fixed = len(image) == 4 and None not in image[1:] and image[3] in (1, 3)
    expected = "images of a fixed size: (batch, height, width, 1 or 3)"
    check(fixed, f"`model` must take one input, {expected}", **shapes)
    expected = "`model` must return one embedding per image: (batch, dim)"
    check(len(rows) == 2 and rows[1] is not None, expected, **shapes)


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
        self.embedder = embedder
        self._loss: Any = loss if learned else None
        self._weights = StoredWeights(layers, self.options.precision)
        self._written = tf.Module()  # instead of the embedder
        self._written.weights = self._weights.stored
        # A later export of this version reads images with the same function.
        self._written.read_image = compiled(read_image, [tf.TensorSpec([], tf.string)])
        self.top = {}  # signature -> rows that it returns
        self.decision: Any = None  # `Decision`, if there is one
        # Each is traced once, even if several others call it.
        images = tf.TensorSpec([None, *self.image_shape], name="images")
        self._embed_images = compiled(self._embed, [images])
        reading = self._written.read_image, self.image_shape, self.options.max_pixels
        self._read = compiled(lambda image_bytes: read_batch(image_bytes, *reading), ENCODED)
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

    def add_decision(self, decision):
        """Adds the signature `decide`, and what it returns to signatures that are added later."""
        self._check_width(decision.rule.rows)
        self.decision = Decision(decision)
        self._written.decision = [variable.value for variable in self.decision.variables]
        rows = tf.TensorSpec([None, self.dim], name="embeddings")
        self.signatures["decide"] = compiled(self._decide, [rows])

    def add_classes(self, means, *, top):
        """Adds the signature `classify`, which returns the `top` of a `Gallery` of class means."""
        self._add("classify", means, top, {"classes": means.ids})

    def add_gallery(self, gallery, *, top):
        """Adds the signature `neighbours`, which returns the `top` of a `Gallery` of images."""
        classes = {} if gallery.classes is None else {"classes": gallery.classes}
        self._add("neighbours", gallery, top, {"ids": gallery.ids, **classes})

    def embed_files(self, paths):
        """The embeddings of image files, (n, dim) float32; a ValueError names an unreadable one."""
        rows = []
        for first in progress("Embedding", range(0, len(paths), _BATCH), unit="batch"):
            batch = paths[first : first + _BATCH]
            images, problems = self._read(tf.constant([*map(read_file, batch)]))
            for path, problem in zip(batch, problems.numpy(), strict=True):
                if problem:
                    raise ValueError(f"{path} {problem.decode()}")
            rows.append(self._embed_images(images)["embedding"])
        return np.concatenate(rows)

    def write(self, path, *, assets=None, metadata=None, images=None):
        """Writes a version; arguments, result and errors are those of `export_model`."""
        path = pathlib.Path(path)
        with new_version(path) as unfinished:
            # Traced here: while it saves, TensorFlow would trace each once more.
            functions = {name: f.get_concrete_function() for name, f in self.signatures.items()}
            tf.saved_model.save(self._written, str(unfinished), functions)
            extra = unfinished / "assets.extra"
            extra.mkdir()
            write_warmup(extra, functions, path.parent.name, self.image_shape)
            known = metadata_of(self, **(metadata or {}))
            if self.options.formats:
                known["files"] = runtimes.write_networks(
                    unfinished, self, self._loss, self.options, known, images
                )
            write_metadata(extra, {**known, "fingerprint": fingerprint(unfinished)})
            for name, content in (assets or {}).items():
                content = content.encode() if isinstance(content, str) else content
                (extra / name).write_bytes(content)
        return path

    def _embed(self, images):
        with self._weights.in_place():
            return {"embedding": tf.cast(self.embedder(images, training=False), tf.float32)}

    def _from_bytes(self, function):
        """A signature that reads images and applies a function to them."""

        def from_bytes(image_bytes):
            images, problems = self._read(image_bytes)
            return self._where_readable(lambda: function(images), image_bytes=problems)

        return compiled(from_bytes, ENCODED)

    def _where_readable(self, outputs, **problems):
        """What `outputs()` returns, with NaN or an error in the rows of problems with an input."""
        if self.options.on_bad_image == "error":
            rejections = [reject_unreadable(texts, name) for name, texts in problems.items()]
            with tf.control_dependencies(rejections):
                return {name: tf.identity(values) for name, values in outputs().items()}
        valid = tf.reduce_all([tf.equal(texts, "") for texts in problems.values()], axis=0)
        return {**{name: blank(v, valid) for name, v in outputs().items()}, "valid": valid}

    def _similarity(self, image_bytes_a, image_bytes_b):
        rows = tf.size(image_bytes_a)
        with tf.control_dependencies([reject_without_partner(image_bytes_a, image_bytes_b)]):
            images, problems = self._read(tf.concat([image_bytes_a, image_bytes_b], axis=0))

        def scores():
            embeddings = self._embed_images(images)["embedding"]
            return self._score_pairs(embeddings[:rows], embeddings[rows:])

        sides = {"image_bytes_a": problems[:rows], "image_bytes_b": problems[rows:]}
        return self._where_readable(scores, **sides)

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

    def _decide(self, embeddings):
        found = self.decision(embeddings)
        names = tf.constant(self.decision.stated["classes"])
        return {"class": tf.gather(names, found["class_id"]), **found}

    def _check_width(self, embeddings):
        width = embeddings.shape[1]
        expected = "a gallery must have embeddings of the length of this model's"
        check(width == self.dim, expected, dim=self.dim, embeddings=width)

    def _add(self, name, gallery, top, texts):
        check_integer(1, top=top)
        self._check_width(gallery.embeddings)
        nearest = Nearest(gallery.embeddings, top)
        setattr(self._written, name, [variable.value for variable in nearest.variables])
        self.top[name] = nearest.top

        def found(images):
            embeddings = self._embed_images(images)["embedding"]
            distances, rows = nearest(embeddings)
            names = {key: tf.gather(tf.constant(values), rows) for key, values in texts.items()}
            decided = self._decide(embeddings) if self.decision else {}
            return {**names, "distances": distances, **decided}

        self.signatures[name] = self._from_bytes(found)


def metadata_of(served, **training):
    """The metadata of a model to be exported, with those of its training that are known."""
    check_options("`metadata`", training, TRAINING)
    known = {name: value for name, value in training.items() if value is not None}
    if "recipe" in known:
        known["recipe"] = without_folders(known["recipe"])
    return {
        "dimension": served.dim,
        "levels": number_of_levels(served.embedder),
        "image_size": list(served.image_shape),
        "colours": "RGB" if served.image_shape[2] == 3 else "grey",
        "signatures": list(served.signatures),
        "top": served.top,
        **({"decision": served.decision.stated} if served.decision else {}),
        "versions": {package.__name__: package.__version__ for package in (tfdml, tf, keras)},
        **dataclasses.asdict(served.options),
        **known,
    }


def compiled(function, signature):
    return tf.function(function, input_signature=signature, autograph=False)


def blank(values, valid):
    """The values with NaN, an empty text, -1 or false in the rows that are not valid."""
    valid = tf.reshape(valid, [-1, *[1] * (values.shape.rank - 1)])
    missing = {tf.string: "", tf.bool: False, tf.int32: -1}.get(values.dtype, float("nan"))
    return tf.where(valid, values, tf.constant(missing, values.dtype))


def reject_without_partner(a, b):
    """Returns an operation that fails unless a and b have the same number of rows."""
    message = "a and b must have the same number of rows"
    return tf.debugging.assert_equal(tf.shape(a)[0], tf.shape(b)[0], message)
