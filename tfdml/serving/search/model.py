"""A served model as a search uses it: embeddings of encoded images, and a score that it learned."""

import hashlib
import threading

import numpy as np
import tensorflow as tf

from tfdml.checks import check
from tfdml.serving.embedding import InPieces, fitting_batch_size
from tfdml.serving.exported import load_signatures
from tfdml.serving.refusals import told_of_first
from tfdml.serving.search.refusals import RefusedError

_AT_ONCE = 2  # embeddings that may be under way: each holds its images in memory, decoded
_PROBES = 8  # images of noise that tell whether all embeddings are of one length
_PAIRS_AT_ONCE = 8192  # handed to the learned similarity


class SearchModel:
    """The functions of one version of a served model.

    Args:
        version: Path of the version's folder.

    Attributes:
        version: The path.
        fingerprint: Text that is another for any other network.
        dim: Numbers of an embedding.
        radius: The length of every embedding where all are of one, as of a normalised model; else
            None.
        learned: Whether it has a learned similarity.

    Raises:
        ValueError: If it cannot be read or lacks a signature that is needed.
    """

    def __init__(self, version):
        signatures = load_signatures(version)
        check(
            "serving_default" in signatures
            and set(signatures["serving_default"].structured_input_signature[1]) == {"image_bytes"}
            and "embedding" in signatures["serving_default"].structured_outputs,
            f"serving_default of {version} must take `image_bytes` and give `embedding`",
            signatures=list(signatures),
        )
        embed = signatures["embed_images"]
        image_size = tuple(embed.structured_input_signature[1]["images"].shape[1:])
        self.version = version
        self.fingerprint = fingerprint(version)
        self.dim = int(embed.structured_outputs["embedding"].shape[1])
        self.batch_size = fitting_batch_size(image_size, self.dim)
        self.radius = _common_length(embed, image_size)
        self.learned = "score_pairs" in signatures
        self._marks_bad = "valid" in signatures["serving_default"].structured_outputs
        self._signatures = signatures
        self._under_way = threading.Semaphore(_AT_ONCE)
        self._warm_up(image_size)

    def embed(self, contents):
        """The embeddings of images.

        Args:
            contents: List of bytes, each a whole file of a picture.

        Returns:
            List, of each image its (dim,) float32 embedding, or a `RefusedError` that says why
            there is none.
        """
        with self._under_way:
            try:
                rows = InPieces(self._embed, self.batch_size)(contents)
            except tf.errors.ResourceExhaustedError:
                raise
            except tf.errors.OpError as error:  # one image is enough
                if len(contents) == 1:
                    return [_unreadable(_cause(error.message))]
                rows = None
        if rows is None:
            return [self.embed([content])[0] for content in contents]
        return [row if np.isfinite(row).all() else self._without_row() for row in rows]

    def score(self, query, rows):
        """The learned similarity of an embedding with others.

        Args:
            query: (dim,) float32.
            rows: (n, dim) float32.

        Returns:
            (n,) floats, the larger the nearer.

        Raises:
            ValueError: If a score is not finite.
        """
        scores = []
        for first in range(0, len(rows), _PAIRS_AT_ONCE):
            others = tf.constant(rows[first : first + _PAIRS_AT_ONCE])
            same = tf.repeat(tf.constant(query)[None], len(others), axis=0)
            found = self._signatures["score_pairs"](embeddings_a=same, embeddings_b=others)
            scores.append(found["similarity"].numpy())
        scores = np.concatenate(scores)
        check(np.isfinite(scores).all(), "the learned similarity must be finite", scores=scores)
        return scores

    def _warm_up(self, image_size):
        """Runs what the first question would otherwise wait for."""
        picture = tf.io.encode_png(tf.zeros(image_size, tf.uint8)).numpy()
        row = self._embed([picture]).numpy()
        if self.learned:
            self.score(row[0], row)

    def _without_row(self):
        """Why a picture has no embedding."""
        if self._marks_bad:
            return _unreadable("it is damaged, too large, or of a kind that cannot be read")
        return RefusedError("The model gives no finite embedding")

    def _embed(self, contents):
        return self._signatures["serving_default"](image_bytes=tf.constant(contents))["embedding"]


def fingerprint(version):
    """The SHA-256 of the graph and the variables of a SavedModel, wherever it lies."""
    digest = hashlib.sha256()
    for path in [version / "saved_model.pb", *sorted((version / "variables").glob("*"))]:
        digest.update(path.name.encode())
        with open(path, "rb") as file:
            while block := file.read(2**20):
                digest.update(block)
    return digest.hexdigest()


def _unreadable(cause):
    return RefusedError(f"The model cannot read the picture ({cause})")


def _cause(message):
    """What an error of TensorFlow says of the only image of a batch.

    >>> _cause("assertion failed: [image_bytes[0] is empty]\\n\\t [[node]]")
    'it is empty'
    >>> _cause("Invalid PNG data, size 12\\n\\t [[node]]")
    'Invalid PNG data, size 12'
    """
    sentence = message.partition("\n\t [[")[0].splitlines()[-1]
    return told_of_first(sentence, "image_bytes") or sentence


def _common_length(embed, image_size):
    """The length of the embeddings of images of noise where it is one, else None."""
    rng = np.random.default_rng(0)
    contrast = np.linspace(0.2, 1, _PROBES)[:, None, None, None]
    images = (255 * contrast * rng.uniform(size=(_PROBES, *image_size))).astype(np.float32)
    lengths = np.linalg.norm(embed(images=tf.constant(images))["embedding"].numpy(), axis=1)
    mean = float(lengths.mean())
    return mean if mean and np.ptp(lengths) <= 1e-3 * mean else None
