"""Value and gradient of a loss on whichever backend Keras runs."""

import functools
import json

import keras
import numpy as np
import pytest

from tfdml import losses

# The dtypes to compare with recorded values in, and how closely. For float32 JAX compiles every
# operation anew; the way is that of float64, and `test_computes_in_float32_or_better` goes it.
PRECISIONS = [("float64", 1e-7), ("float32", 2e-4)]
if keras.backend.backend() == "jax":
    PRECISIONS.pop()


# How closely float64 is computed: on PyTorch Keras takes, among others, the maximum of two float64
# tensors and their cumulative sum in float32. A GPU adds in an order that varies between two calls.
DOUBLE, REPEATED = 1e-9, 0.0
if keras.backend.backend() == "torch":
    import torch

    DOUBLE, REPEATED = (1e-5, 1e-6) if torch.cuda.is_available() else (1e-6, 0.0)


def slow_on_jax(test):
    """Marks a test slow on JAX, which compiles every operation anew for its shapes."""
    return pytest.mark.slow(test) if keras.backend.backend() == "jax" else test


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
        value, gradient = compiled(loss, embeddings.shape[-1])(labels, embeddings)
        return float(value), gradient
    import torch

    rows = torch.tensor(embeddings, requires_grad=True)
    value = loss(labels, rows)
    value.backward()
    return float(value), rows.grad.numpy()


def differentiable(loss, dim):
    """`value_and_gradient` of a loss, as a function of labels and rows; on JAX compiled."""
    if keras.backend.backend() == "jax":
        return compiled(loss, dim)
    return functools.partial(value_and_gradient, loss)


def compiled(loss, dim, dtype="float32"):
    """`differentiable` of a loss and rows of a dtype, compiled where the backend compiles."""
    backend = keras.backend.backend()
    if backend == "torch":
        return functools.partial(value_and_gradient, loss)
    for layer in getattr(loss, "layers", ()):
        if not layer.built:
            layer.build((None, dim))  # no trace may create weights
    if backend == "jax":
        import jax

        graph = jax.jit(jax.value_and_grad(lambda rows, labels: loss(labels, rows)))
    else:
        import tensorflow as tf

        def traced(rows, labels):
            with tf.GradientTape() as tape:
                tape.watch(rows)
                value = loss(labels, rows)
            return value, tf.convert_to_tensor(tape.gradient(value, rows))

        signature = [tf.TensorSpec([None, dim], dtype), tf.TensorSpec([None], tf.int64)]
        graph = tf.function(traced, input_signature=signature, autograph=False)
    return lambda labels, rows: [np.asarray(part) for part in graph(rows, labels)]


@functools.cache
def of_case(name, options, dim):
    """`compiled` of a loss, its options as JSON, once; JAX does so for each shape."""
    return compiled(losses.get(name, **json.loads(options)), dim)


def float32_forms(name, options, dim):
    """Functions of labels and float32 rows to the value: those of any batch size, those of one.

    On TensorFlow eager, a graph, and a graph with XLA; on JAX `of_case`; on PyTorch eager.
    """
    backend = keras.backend.backend()
    if backend == "jax":  # eager would compile every operation once more
        return [], [lambda *batch: of_case(name, options, dim)(*batch)[0]]
    loss = losses.get(name, **json.loads(options))
    if backend != "tensorflow":
        return [loss], []
    import tensorflow as tf

    signature = [tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, dim])]
    graph = tf.function(loss.__call__, input_signature=signature, autograph=False)
    # XLA compiles the same trace.
    xla = tf.function(graph, input_signature=signature, autograph=False, jit_compile=True)
    return [loss, graph], [xla]  # it compiles each size anew
