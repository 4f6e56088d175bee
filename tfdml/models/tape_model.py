"""The steps of `EmbeddingModel` on TensorFlow: of the rows of all replicas, and in pieces."""

from typing import Any

import keras
import tensorflow as tf

from tfdml.layers.gathering import gather_replicas


class TapeModel(keras.Model):
    """The part of `EmbeddingModel` that other backends have from Keras."""

    embedder: Any
    micro_batch: Any

    def fit(self, *args, **kwargs):
        optimizer = getattr(self, "optimizer", None)  # without, Keras asks for `compile`
        if optimizer is not None and not optimizer.built:
            # Built here, as building within the first step, as in Keras, would trace it twice.
            with self.distribute_strategy.scope():
                optimizer.build(self.trainable_variables)
        return super().fit(*args, **kwargs)

    def train_step(self, data):
        images, labels, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        if self.micro_batch is not None:
            own = embed_in_pieces(self.embedder, images, self.micro_batch)
        with tf.GradientTape() as tape:
            if self.micro_batch is None:
                own = self(images, training=True)
            else:
                tape.watch(own)
            embeddings, labels, weights = gather_replicas(own, labels, sample_weight)
            loss = self.compute_loss(images, labels, embeddings, weights, training=True)
            scaled = self.optimizer.scale_loss(loss)
        variables = self.trainable_variables
        *gradients, output_gradients = tape.gradient(scaled, [*variables, own])
        if self.micro_batch is not None:
            pieces = gradients_in_pieces(self.embedder, images, output_gradients, self.micro_batch)
            rest = gradients[len(pieces) :]  # of the loss
            own = zip(gradients, pieces, strict=False)
            gradients = [*(piece if grad is None else grad + piece for grad, piece in own), *rest]
        self.optimizer.apply(gradients, variables)
        return self.compute_metrics(images, labels, embeddings, weights)

    def test_step(self, data):
        images, labels, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        own = self(images, training=False)
        embeddings, labels, weights = gather_replicas(own, labels, sample_weight)
        self.compute_loss(images, labels, embeddings, weights, training=False)
        return self.compute_metrics(images, labels, embeddings, weights)


def embed_in_pieces(embedder, images, size):
    """Embeddings in training mode, `size` at a time, without gradients and changes of state."""
    state = [variable for variable in embedder.variables if not variable.trainable]
    before = [tf.identity(variable.value) for variable in state]
    (output,) = embedder.outputs
    dim = output.shape[-1]

    def embed(piece, rows):
        new = embedder(_piece(images, piece, size), training=True)
        return piece + 1, tf.concat([rows, new], axis=0)

    rows = _loop(images, size, embed, tf.zeros((0, dim), output.dtype), tf.TensorShape([None, dim]))
    with tf.control_dependencies([rows]):  # `gradients_in_pieces` draws the same dropout
        for variable, value in zip(state, before, strict=True):
            variable.assign(value)
    return rows


def gradients_in_pieces(embedder, images, output_gradients, size):
    """Gradients of the embedder's trainable variables, given those of its embeddings."""
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
