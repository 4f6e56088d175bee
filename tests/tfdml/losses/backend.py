"""Value and gradient of a loss on whichever backend Keras runs."""

import keras
import numpy as np


def value_and_gradient(loss, labels, embeddings):
    """The loss and its gradient in the embeddings, as float and NumPy array."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        rows = tf.convert_to_tensor(embeddings)
        with tf.GradientTape() as tape:
            tape.watch(rows)
            value = loss(labels, rows)
        return float(value), tf.convert_to_tensor(tape.gradient(value, rows)).numpy()
    if backend == "jax":
        import jax

        value, gradient = jax.value_and_grad(lambda rows: loss(labels, rows))(
            jax.numpy.asarray(embeddings)
        )
        return float(value), np.asarray(gradient)
    import torch

    rows = torch.tensor(embeddings, requires_grad=True)
    value = loss(labels, rows)
    value.backward()
    return float(value), rows.grad.numpy()


def compiled_gradient(loss, labels):
    """A function from embeddings to the gradient, compiled where the backend compiles."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        @tf.function
        def gradient(rows):
            with tf.GradientTape() as tape:
                tape.watch(rows)
                value = loss(labels, rows)
            return tf.convert_to_tensor(tape.gradient(value, rows))

        return lambda embeddings: gradient(tf.constant(embeddings)).numpy()
    if backend == "jax":
        import jax

        gradient = jax.jit(jax.grad(lambda rows: loss(labels, rows)))
        return lambda embeddings: np.asarray(gradient(embeddings))
    return lambda embeddings: value_and_gradient(loss, labels, embeddings)[1]


def compiled(loss, labels, embeddings, xla):
    """The loss in a graph with an unknown batch size (TensorFlow) or jitted (JAX)."""
    if keras.backend.backend() == "jax":
        import jax

        return float(jax.jit(lambda y, x: loss(y, x))(labels, embeddings))
    import tensorflow as tf

    signature = [tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, embeddings.shape[1]])]
    function = tf.function(loss.__call__, input_signature=signature, jit_compile=xla)
    return float(function(labels.astype("int64"), embeddings))
