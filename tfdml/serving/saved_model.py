import os
import pathlib
import shutil
import tempfile

import keras
import tensorflow as tf

from tfdml import pairwise


def export_model(embedder, path, read_image, loss=None, assets=None):
    """Writes a SavedModel that TF Serving loads unchanged.

    Signatures, with rows of a against the same rows of b unless said otherwise:
        serving_default: `image_bytes` (n,) encoded images -> `embedding` (n, dim) float32.
        embed_images: `images` (n, height, width, channels) float32 in [0, 255] -> `embedding`.
        read_images: `image_bytes` (n,) -> `images`, what `embed_images` takes.
        similarity: `image_bytes_a` (n,) and `image_bytes_b` (n,) -> `similarity` (n,) float32, the
            score that the loss learned, or else the cosine.
        score_pairs: `embeddings_a` (n, dim) and `embeddings_b` (n, dim) -> `similarity` (n,), the
            learned score. Only where there is one.
        score_matrix: `embeddings_a` (n, dim) and `embeddings_b` (m, dim) -> `similarity` (n, m),
            the learned score of all rows of a against all of b. Only where there is one.

    The folder appears whole or not at all, so a server that watches it never sees half a version.

    Args:
        embedder: A functional `keras.Model` from images to embeddings.
        path: The version's folder, such as `saved_models/NAME/1`; must not exist.
        read_image: The preprocessing of training: from a scalar string tensor of encoded bytes to
            one (height, width, channels) float32 image in [0, 255], in TensorFlow operations.
        loss: The loss that the embedder was trained with. The similarity that it learned, in its
            `layer`, is served without dropout.
        assets: File name -> text or bytes, written to the version's `assets.extra`.

    Returns:
        The path of the version.

    Raises:
        FileExistsError: If the version exists.
    """
    path = pathlib.Path(path)
    if path.exists():
        raise FileExistsError(f"{path} exists. A version is never overwritten: choose a new one.")
    image_shape, dim = embedder.input_shape[1:], embedder.output_shape[-1]
    image = tf.TensorSpec(image_shape, tf.float32)
    score_pairs, score_matrix = _learned_scores(loss) or (_cosine, None)

    def embed_images(images):
        return {"embedding": embedder(images, training=False)}

    def read_images(image_bytes):
        return {"images": tf.map_fn(read_image, image_bytes, fn_output_signature=image)}

    def embed_bytes(image_bytes):
        return embed_images(**read_images(image_bytes))

    def similarity(image_bytes_a, image_bytes_b):
        a, b = embed_bytes(image_bytes_a), embed_bytes(image_bytes_b)
        return score_rows(a["embedding"], b["embedding"])

    def score_rows(embeddings_a, embeddings_b):
        rows_a, rows_b = tf.shape(embeddings_a)[0], tf.shape(embeddings_b)[0]
        refusal = tf.debugging.assert_equal(rows_a, rows_b, "a and b must have as many rows")
        # Or another operation may fail over the rows first.
        with tf.control_dependencies([refusal]):
            return {"similarity": score_pairs(embeddings_a, embeddings_b)}

    def score_all(embeddings_a, embeddings_b):
        return {"similarity": score_matrix(embeddings_a, embeddings_b)}

    def inputs(shape, *names, dtype=tf.float32):
        return [tf.TensorSpec(shape, dtype, name) for name in names]

    archive = keras.export.ExportArchive()
    archive.track(embedder)
    encoded = inputs([None], "image_bytes", dtype=tf.string)
    archive.add_endpoint("serving_default", embed_bytes, encoded)
    archive.add_endpoint("embed_images", embed_images, inputs([None, *image_shape], "images"))
    archive.add_endpoint("read_images", read_images, encoded)
    encoded = inputs([None], "image_bytes_a", "image_bytes_b", dtype=tf.string)
    archive.add_endpoint("similarity", similarity, encoded)
    if score_matrix is not None:
        archive.track(loss.similarity_layer)
        rows = inputs([None, dim], "embeddings_a", "embeddings_b")
        archive.add_endpoint("score_pairs", score_rows, rows)
        archive.add_endpoint("score_matrix", score_all, rows)
    parent_is_new = not path.parent.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".unfinished-{path.name}-"
    for killed in path.parent.glob(f"{prefix}*"):
        shutil.rmtree(killed)
    unfinished = pathlib.Path(tempfile.mkdtemp(prefix=prefix, dir=path.parent))
    try:
        archive.write_out(str(unfinished), verbose=False)
        (unfinished / "assets.extra").mkdir(exist_ok=True)
        for name, content in (assets or {}).items():
            content = content.encode() if isinstance(content, str) else content
            (unfinished / "assets.extra" / name).write_bytes(content)
        unfinished.chmod(0o755)
        os.rename(unfinished, path)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        if parent_is_new and not any(path.parent.iterdir()):
            path.parent.rmdir()
        raise
    return path


def _learned_scores(loss):
    """The score of pairs of rows and that of all rows against all; None if it learned none."""
    if not getattr(loss, "learns_similarity", False):
        return None

    def score_matrix(a, b):
        if loss.normalize:
            a, b = pairwise.normalize(a), pairwise.normalize(b)
        return loss.similarity_layer.matrix(a, b)

    return loss.similarity, score_matrix


def _cosine(a, b):
    return tf.reduce_sum(pairwise.normalize(a) * pairwise.normalize(b), axis=1)
