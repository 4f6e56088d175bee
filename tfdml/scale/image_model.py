"""An exported model, which reads and embeds encoded images."""

import numpy as np
import tensorflow as tf

from tfdml.checks import check
from tfdml.images.image_headers import readable
from tfdml.serving.bad_images import UNKNOWN, reasons
from tfdml.serving.bounded_batches import InPieces, fitting_batch_size
from tfdml.serving.exported import fingerprint, load_signatures

_NOT_FINITE = "the model gives no finite embedding"


class ImageModel:
    """The signatures `read_images` and `embed_images` of one exported `version`."""

    def __init__(self, version):
        self.version, self.fingerprint = version, fingerprint(version)
        signatures = load_signatures(version)
        embed, expected = signatures["embed_images"], f"{version} must have a signature read_images"
        check("read_images" in signatures, expected, signatures=list(signatures))
        self.image_shape = tuple(embed.structured_input_signature[1]["images"].shape[1:])
        self.dim = embed.structured_outputs["embedding"].shape[1]
        check(self.dim, f"`embedding` of {version} must have a fixed length", dim=self.dim)
        self.batch_size = fitting_batch_size(self.image_shape, self.dim)
        self._signatures = signatures
        self._blank = tf.io.encode_png(tf.zeros(self.image_shape, tf.uint8)).numpy()
        self._embed = InPieces(lambda images: embed(images=images)["embedding"], self.batch_size)

    def read(self, contents):
        """Decodes n files, each given as bytes, or as a text, the reason why there are none.

        Returns the images, of any values where they cannot be read, and n reasons or None.
        """
        problems = {row: text for row, text in enumerate(contents) if isinstance(text, str)}
        outputs = None
        while outputs is None:
            kept = [self._blank if row in problems else c for row, c in enumerate(contents)]
            try:
                outputs = self._read(kept)
            except tf.errors.InvalidArgumentError as error:  # it names some of the unreadable
                found = reasons(error.message, "image_bytes")
                if found.keys() <= problems.keys():  # even the blank image is rejected
                    raise
                problems |= found
        valid = outputs.get("valid", np.ones(len(contents), bool))
        for row in np.flatnonzero(~np.asarray(valid)):
            problems.setdefault(int(row), UNKNOWN)
        return outputs["images"], [problems.get(row) for row in range(len(contents))]

    def embed(self, images, problems):
        """The (n, dim) float32 embeddings of what `read` returned, and why rows are not valid."""
        rows = self._embed(images)
        finite = [np.isfinite(row).all() for row in rows]
        pairs = zip(problems, finite, strict=True)
        return rows, [each or (None if valid else _NOT_FINITE) for each, valid in pairs]

    def _read(self, contents):
        return self._signatures["read_images"](image_bytes=tf.constant([*map(readable, contents)]))
