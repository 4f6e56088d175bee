import pathlib

import tensorflow as tf

from tfdml import pairwise
from tfdml.serving.versions import check_new, new_version
from tfdml.serving.warmup import write_warmup


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
    Its `assets.extra` holds a warm-up request for each signature, so that the first one of a user
    is as fast as the others.

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
    check_new(path)
    image_shape, dim = embedder.input_shape[1:], embedder.output_shape[-1]
    image = tf.TensorSpec(image_shape, tf.float32)
    score_pairs, score_matrix = _learned_scores(loss) or (_cosine, None)

    def inputs(shape, *names, dtype=tf.float32):
        return [tf.TensorSpec(shape, dtype, name) for name in names]

    encoded = inputs([None], "image_bytes", dtype=tf.string)
    pairs_encoded = inputs([None], "image_bytes_a", "image_bytes_b", dtype=tf.string)

    # Traced once, however many signatures embed.
    @tf.function(input_signature=inputs([None, *image_shape], "images"), autograph=False)
    def embed_images(images):
        return {"embedding": embedder(images, training=False)}

    @tf.function(input_signature=encoded, autograph=False)
    def read_images(image_bytes):
        return {"images": tf.map_fn(read_image, image_bytes, fn_output_signature=image)}

    @tf.function(input_signature=encoded, autograph=False)
    def embed_bytes(image_bytes):
        return embed_images(**read_images(image_bytes))

    @tf.function(input_signature=pairs_encoded, autograph=False)
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

    signatures = {
        "serving_default": embed_bytes,
        "embed_images": embed_images,
        "read_images": read_images,
        "similarity": similarity,
    }
    served = tf.Module()
    served.weights = [variable.value for variable in embedder.variables]
    if score_matrix is not None:
        served.weights += [variable.value for variable in loss.similarity_layer.variables]
        rows = inputs([None, dim], "embeddings_a", "embeddings_b")
        for name, function in (("score_pairs", score_rows), ("score_matrix", score_all)):
            signatures[name] = tf.function(function, input_signature=rows, autograph=False)
    with new_version(path) as unfinished:
        tf.saved_model.save(served, str(unfinished), signatures)
        extra = unfinished / "assets.extra"
        extra.mkdir()
        functions = {name: each.get_concrete_function() for name, each in signatures.items()}
        write_warmup(extra, functions, model_name=path.parent.name, image_shape=image_shape)
        for name, content in (assets or {}).items():
            (extra / name).write_bytes(content.encode() if isinstance(content, str) else content)
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
