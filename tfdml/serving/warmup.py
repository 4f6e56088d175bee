"""Warm-up requests that TensorFlow Serving runs before it answers users.

The first request to a signature is slow, as TensorFlow prepares the graph. A server that finds
`assets.extra/tf_serving_warmup_requests` in a version runs these requests when it loads it.
"""

import numpy as np
import tensorflow as tf

FILE = "tf_serving_warmup_requests"


def write_warmup(folder, functions, model_name, image_shape):
    """Writes one request for each of {signature: concrete function} into `assets.extra`."""
    # A grey image as JPEG and as PNG, which take different branches of the graph.
    image = tf.fill(image_shape, tf.constant(128, tf.uint8))
    encoded = np.array([tf.io.encode_jpeg(image).numpy(), tf.io.encode_png(image).numpy()])
    with tf.io.TFRecordWriter(str(folder / FILE)) as writer:
        for name, function in functions.items():
            inputs = {}
            for spec in tf.nest.flatten(function.structured_input_signature):
                blank = np.zeros([1, *spec.shape[1:]], spec.dtype.as_numpy_dtype)
                inputs[spec.name] = encoded if spec.dtype == tf.string else blank
            writer.write(_prediction_log(model_name, name, inputs))


def _prediction_log(model_name, signature, inputs):
    spec = _message((1, model_name.encode()), (3, signature.encode()))  # ModelSpec
    protos = {name: tf.make_tensor_proto(value) for name, value in inputs.items()}
    tensors = (((1, k.encode()), (2, v.SerializeToString())) for k, v in protos.items())
    request = _message((1, spec), *((2, _message(*each)) for each in tensors))  # PredictRequest
    return _message((6, _message((1, request))))  # PredictionLog of a PredictLog


def _message(*fields):
    """A protocol buffer of (number, bytes) fields, all of texts, bytes or messages."""
    return b"".join(_varint(number << 3 | 2) + _varint(len(data)) + data for number, data in fields)


def _varint(number):
    """Encodes seven bits a byte, lowest first; the eighth is set in all but the last byte."""
    groups = []
    while number > 127:
        groups.append(number & 127 | 128)
        number >>= 7
    return bytes([*groups, number])
