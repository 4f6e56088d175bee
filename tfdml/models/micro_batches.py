"""A training step on a batch whose activations do not fit in memory at once."""

import keras
import tensorflow as tf


def embed_in_pieces(embedder, images, size):
    """Embeddings of all images in training mode, `size` at a time and without gradients.

    The random seeds and statistics of the embedder are as before afterwards, so that
    `gradients_in_pieces` draws the same dropout.
    """
    state = [variable for variable in embedder.variables if not variable.trainable]
    before = [tf.identity(variable.value) for variable in state]
    (output,) = embedder.outputs
    dim = output.shape[-1]

    def embed(piece, rows):
        new = embedder(_piece(images, piece, size), training=True)
        return piece + 1, tf.concat([rows, new], axis=0)

    rows = _loop(images, size, embed, tf.zeros((0, dim), output.dtype), tf.TensorShape([None, dim]))
    with tf.control_dependencies([rows]):
        for variable, value in zip(state, before, strict=True):
            variable.assign(value)
    return rows


def gradients_in_pieces(embedder, images, output_gradients, size):
    """Gradients of the embedder's trainable variables, given those of its embeddings.

    Args:
        embedder: A `keras.Model`.
        images: (n, ...) tensor, or a structure of them, as the embedder takes.
        output_gradients: (n, dim) floats.
        size: Images at a time.

    Returns:
        List of tensors, in the order of `embedder.trainable_variables`.
    """
    variables = [variable.value for variable in embedder.trainable_variables]

    def add(piece, totals):
        with tf.GradientTape() as tape:
            embeddings = embedder(_piece(images, piece, size), training=True)
        gradients = tape.gradient(
            embeddings,
            variables,
            output_gradients=tf.cast(_piece(output_gradients, piece, size), embeddings.dtype),
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        return piece + 1, [total + more for total, more in zip(totals, gradients, strict=True)]

    zeros = [tf.zeros_like(variable) for variable in variables]
    return _loop(images, size, add, zeros, [zero.shape for zero in zeros])


def _piece(rows, piece, size):
    return keras.tree.map_structure(lambda each: each[piece * size : (piece + 1) * size], rows)


def _loop(images, size, body, start, shapes):
    """The result of `body` over all pieces, one after another."""
    pieces = -(-tf.shape(keras.tree.flatten(images)[0])[0] // size)
    return tf.while_loop(
        lambda piece, _: piece < pieces,
        body,
        (tf.constant(0), start),
        shape_invariants=(tf.TensorShape([]), shapes),
        parallel_iterations=1,
    )[1]
