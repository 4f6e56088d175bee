"""Rows of all replicas, so that a loss compares those of the whole batch."""

import contextlib

from tfdml.pairwise import tf  # None on JAX and PyTorch, where there are no replicas


def gather_replicas(*given) -> tuple:
    """The rows of all replicas of a `tf.distribute` strategy, of each tensor that is not None."""
    if tf is None:
        return given
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return given
    tensors = [tensor for tensor in given if tensor is not None]
    devices = context.strategy.extended.worker_devices
    # Workers of one device each require that the tensors name it.
    with tf.device(devices[0]) if len(devices) == 1 else contextlib.nullcontext():
        own = [tf.identity(_gatherable(tensor)) for tensor in tensors]
    gathered = [context.all_gather(tensor, axis=0) for tensor in own]  # of unknown shape
    shaped = (
        tf.ensure_shape(rows, [None, *tensor.shape[1:]])
        for rows, tensor in zip(gathered, tensors, strict=True)
    )
    return tuple(None if tensor is None else next(shaped) for tensor in given)


def num_replicas():
    """Number of replicas of a `tf.distribute` strategy that make the same step."""
    return 1 if tf is None else tf.distribute.get_strategy().num_replicas_in_sync


def share_of_replica(value):
    """The value, divided by the number of replicas where it is computed in one of them."""
    if tf is None or tf.distribute.in_cross_replica_context():
        return value
    return value / tf.distribute.get_strategy().num_replicas_in_sync


def builds_for_replicas():
    """Whether Keras builds a model for a `tf.distribute` strategy, outside the replicas.

    Labels are then averages over replicas: floats, which nothing compares.
    """
    if tf is None or not tf.distribute.has_strategy():
        return False
    return tf.distribute.in_cross_replica_context()


def _gatherable(tensor):
    """The tensor in a dtype that collective operations take."""
    if tensor.dtype.is_integer and tensor.dtype != tf.int32:
        return tf.cast(tensor, tf.int64)
    return tf.cast(tensor, tf.float32) if tensor.dtype == tf.bfloat16 else tensor
