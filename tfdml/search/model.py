"""An exported model for search: embeddings of encoded images, and its learned similarity."""

import threading

import numpy as np
import tensorflow as tf

from tfdml.checks import check
from tfdml.search.images import RejectedError
from tfdml.serving.bad_images import UNKNOWN, reason_for_only
from tfdml.serving.bounded_batches import InPieces, fitting_batch_size
from tfdml.serving.exported import fingerprint, load_signatures

_AT_ONCE = 2  # concurrent embeddings; each holds its decoded images in memory
_PROBES = 8  # noise images to test whether all embeddings have the same length
_PAIRS_AT_ONCE = 8192  # batch of the learned similarity
_UNREADABLE = "The model cannot read the picture ({})"


class SearchModel:
    """The signatures of one exported version, for search.

    Args:
        version: Path of the version's folder.

    Attributes:
        version: The path.
        fingerprint: Text that identifies the network.
        dim: Length of an embedding vector.
        radius: The Euclidean norm of all embeddings if they share one, as in a normalised model;
            otherwise None.
        learned: Whether it has a learned similarity.

    Raises:
        ValueError: If it cannot be read or lacks a required signature.
    """

    def __init__(self, version):
        signatures = load_signatures(version)
        check(
            "serving_default" in signatures
            and set(signatures["serving_default"].structured_input_signature[1]) == {"image_bytes"}
            and "embedding" in signatures["serving_default"].structured_outputs,
            f"serving_default of {version} must take `image_bytes` and return `embedding`",
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
        self._without_row = "The model gives no finite embedding"
        if "valid" in signatures["serving_default"].structured_outputs:
            self._without_row = _UNREADABLE.format(UNKNOWN)
        self._signatures = signatures
        self._under_way = threading.Semaphore(_AT_ONCE)
        self._warm_up(image_size)

    def embed(self, contents):
        """The embeddings of images.

        Args:
            contents: List of bytes, each of a complete image file.

        Returns:
            List with the (dim,) float32 embedding of each image, or a `RejectedError` with the
            reason why it has none.
        """
        with self._under_way:
            try:
                rows = InPieces(self._embed, self.batch_size)(contents)
            except tf.errors.ResourceExhaustedError:
                raise
            except tf.errors.OpError as error:  # a single bad image fails the batch
                if len(contents) == 1:
                    cause = reason_for_only(error.message, "image_bytes")
                    return [RejectedError(_UNREADABLE.format(cause))]
                rows = None
        if rows is None:
            return [self.embed([content])[0] for content in contents]
        return [row if np.isfinite(row).all() else RejectedError(self._without_row) for row in rows]

    def score(self, query, rows):
        """The learned similarity of an embedding to others.

        Args:
            query: (dim,) float32.
            rows: (n, dim) float32.

        Returns:
            (n,) floats, the larger the nearer.

        Raises:
            ValueError: If a score is not finite.
        """

        def score_piece(others):
            same = tf.repeat(tf.constant(query)[None], len(others), axis=0)
            pairs = {"embeddings_a": same, "embeddings_b": tf.constant(others)}
            return self._signatures["score_pairs"](**pairs)["similarity"]

        scores = InPieces(score_piece, _PAIRS_AT_ONCE)(rows)
        infinite = int(np.count_nonzero(~np.isfinite(scores)))
        check(not infinite, "the learned similarity must be finite", not_finite=infinite)
        return scores

    def _warm_up(self, image_size):
        """Runs the signatures once, so that the first query need not wait for it."""
        picture = tf.io.encode_png(tf.zeros(image_size, tf.uint8)).numpy()
        row = self._embed([picture]).numpy()
        if self.learned:
            self.score(row[0], row)

    def _embed(self, contents):
        return self._signatures["serving_default"](image_bytes=tf.constant(contents))["embedding"]


def _common_length(embed, image_size):
    """The common norm of the embeddings of noise images; None if they differ."""
    rng = np.random.default_rng(0)
    contrast = np.linspace(0.2, 1, _PROBES)[:, None, None, None]
    images = (255 * contrast * rng.uniform(size=(_PROBES, *image_size))).astype(np.float32)
    lengths = np.linalg.norm(embed(images=tf.constant(images))["embedding"].numpy(), axis=1)
    mean = float(lengths.mean())
    return mean if mean and np.ptp(lengths) <= 1e-3 * mean else None
