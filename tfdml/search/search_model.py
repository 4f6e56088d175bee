"""An exported model for search: embeddings of encoded images, and its learned similarity."""

import threading

import numpy as np
import tensorflow as tf

from tfdml.checks import check
from tfdml.scale.image_model import ImageModel
from tfdml.search.picture_files import RejectedError
from tfdml.serving.bounded_batches import InPieces
from tfdml.serving.metadata import read_metadata

_AT_ONCE = 2  # concurrent embeddings; each holds its decoded images in memory
_PROBES = 8  # noise images to test whether all embeddings have the same length
_PAIRS_AT_ONCE = 8192  # batch of the learned similarity


class SearchModel(ImageModel):
    """An `ImageModel` for search.

    `radius` is the norm of all embeddings, None if they differ, and `stated` what its metadata say
    of its decision, None if it decides nothing.
    """

    def __init__(self, version):
        super().__init__(version)
        self.radius = self._common_length()
        self.learned = "score_pairs" in self._signatures
        self.stated = (
            read_metadata(version).get("decision") if "decide" in self._signatures else None
        )
        self._under_way = threading.Semaphore(_AT_ONCE)
        row = self.embed_picture(self._blank)  # so that no query waits for the first run
        if self.learned:
            self.score(row, np.array([row]))

    def embed_picture(self, content):
        """The (dim,) embedding of the bytes of a file; a `RejectedError` if it cannot be read."""
        with self._under_way:
            [row], [problem] = self.embed(*self.read([content]))
        if problem:
            raise RejectedError(f"The model cannot read the picture ({problem})")
        return row

    def decide(self, row):
        """What the model decides of a (dim,) embedding, with its threshold; None if nothing."""
        if self.stated is None:
            return None
        found = self._signatures["decide"](embeddings=tf.constant(row)[None])
        found = {name: values[0].numpy() for name, values in found.items()}
        return {
            "known": bool(found["known"]),
            "class": found["class"].decode(),
            "probability": float(found["probability"]),
            "distance": -float(found["score"]),
            "threshold": -self.stated["threshold"],
            "method": self.stated["method"],
        }

    def score(self, query, rows):
        """The learned similarity of a (dim,) embedding to (n, dim) others: (n,) finite floats."""

        def score_piece(others):
            same = tf.repeat(tf.constant(query)[None], len(others), axis=0)
            pairs = {"embeddings_a": same, "embeddings_b": tf.constant(others)}
            return self._signatures["score_pairs"](**pairs)["similarity"]

        scores = InPieces(score_piece, _PAIRS_AT_ONCE)(rows)
        infinite = int(np.count_nonzero(~np.isfinite(scores)))
        check(not infinite, "the learned similarity must be finite", not_finite=infinite)
        return scores

    def _common_length(self):
        """The common norm of the embeddings of noise images; None if they differ."""
        rng = np.random.default_rng(0)
        contrast = np.linspace(0.2, 1, _PROBES)[:, None, None, None]
        images = 255 * contrast * rng.uniform(size=(_PROBES, *self.image_shape))
        rows, _ = self.embed(images.astype(np.float32), [None] * _PROBES)
        lengths = np.linalg.norm(rows, axis=1)
        mean = float(lengths.mean())
        return mean if mean and np.ptp(lengths) <= 1e-3 * mean else None
