import numpy as np
import pytest
import tensorflow as tf

from tfdml.client import grpc_service
from tfdml.client.protos import message

TENSOR = message("tensorflow/core/framework/tensor.proto", "tensorflow.TensorProto")


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "bool"])
def test_tensors_are_those_of_tensorflow(dtype, rng):
    array = rng.integers(0, 2 if dtype == "bool" else 200, (2, 3)).astype(dtype)
    ours = TENSOR()
    grpc_service._fill(ours, array)
    theirs = tf.make_tensor_proto(array)
    np.testing.assert_array_equal(
        tf.make_ndarray(type(theirs).FromString(ours.SerializeToString())), array
    )
    found = grpc_service._array(TENSOR.FromString(theirs.SerializeToString()))
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype


def test_lists_of_numbers_are_read_and_may_end_in_repetitions():
    tensor = TENSOR(dtype=1, float_val=[1.0, 2.0])
    for side in (2, 2):
        tensor.tensor_shape.dim.add(size=side)
    np.testing.assert_array_equal(grpc_service._array(tensor), [[1, 2], [2, 2]])


def test_texts_are_bytes():
    theirs = tf.make_tensor_proto([[b"a", b""], [b"\xff", b"d"]])
    found = grpc_service._array(TENSOR.FromString(theirs.SerializeToString()))
    assert found.tolist() == [[b"a", b""], [b"\xff", b"d"]]


def test_numbers_of_other_types_are_rejected():
    with pytest.raises(TypeError, match=r"must be of float32, .*bool\. Received: dtype=float16"):
        grpc_service._fill(TENSOR(), np.zeros(2, np.float16))
