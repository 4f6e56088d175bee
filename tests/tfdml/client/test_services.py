"""What gRPC and REST make of arrays, addresses, errors and retries."""

import threading
import time
import unittest.mock

import numpy as np
import pytest
import tensorflow as tf
from hostile import HostileServer, saying
from tensorflow.core.framework.tensor_pb2 import TensorProto

from tfdml.client import Client, ServingError, grpc_service
from tfdml.client.client import connect
from tfdml.client.grpc_service import GrpcService
from tfdml.client.rest_service import RestService
from tfdml.client.service import versions_in
from tfdml.threads import in_order

OPTIONS = {"timeout": 20.0, "headers": {}, "connections": 1, "retries": 0}
FILES = {"authority": None, "certificate": None, "key": None}


@pytest.mark.parametrize(
    ("address", "kind", "where"),
    [
        ("grpc://host", GrpcService, "host:8500"),
        ("grpc://host:85", GrpcService, "host:85"),
        ("grpc://[::1]:8500/", GrpcService, "[::1]:8500"),
        ("grpcs://host", GrpcService, "host:8500"),
        ("http://host", RestService, "http://host:8501"),
        ("https://host", RestService, "https://host:443"),
        ("https://host:1/behind/a/path", RestService, "https://host:1/behind/a/path"),
        ("http://[::1]:9/x/", RestService, "http://[::1]:9/x"),
    ],
)
def test_the_scheme_names_the_protocol_and_its_port(address, kind, where, monkeypatch):
    channel = unittest.mock.Mock()
    monkeypatch.setattr("grpc.insecure_channel", channel)
    monkeypatch.setattr("grpc.secure_channel", channel)
    connected = connect(address, FILES, **OPTIONS)
    assert type(connected) is kind
    assert where == (channel.call_args.args[0] if channel.called else connected._address)
    connected.close()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "bool"])
def test_tensors_are_those_of_tensorflow(dtype, rng):
    array = rng.integers(0, 2 if dtype == "bool" else 200, (2, 3)).astype(dtype)
    ours, theirs = TensorProto(), tf.make_tensor_proto(array)
    grpc_service._fill(ours, array)
    read_by_theirs = tf.make_ndarray(type(theirs).FromString(ours.SerializeToString()))
    np.testing.assert_array_equal(read_by_theirs, array)
    found = grpc_service._array(TensorProto.FromString(theirs.SerializeToString()))
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype


def test_lists_of_numbers_may_end_in_repetitions_and_texts_are_bytes():
    tensor = TensorProto(dtype=1, float_val=[1.0, 2.0])
    for side in (2, 2):
        tensor.tensor_shape.dim.add(size=side)
    np.testing.assert_array_equal(grpc_service._array(tensor), [[1, 2], [2, 2]])
    texts = [[b"a", b""], [b"\xff", b"d"]]
    theirs = tf.make_tensor_proto(texts).SerializeToString()
    assert grpc_service._array(TensorProto.FromString(theirs)).tolist() == texts


def test_numbers_of_other_types_are_rejected():
    with pytest.raises(TypeError, match=r"must be of float32, .*bool\. Received: dtype=float16"):
        grpc_service._fill(TensorProto(), np.zeros(2, np.float16))


def test_numbers_texts_and_nan_are_read():
    outputs = '{"embedding": [[0.1, NaN]], "id": [3], "label": ["ü"], "x_bytes": [{"b64": "/w=="}]}'
    with HostileServer() as server:
        server.answer = saying(200, f'{{"outputs": {outputs}}}'.encode())
        with Client(f"http://127.0.0.1:{server.port}", model="embedder") as client:
            found = client.predict("neighbours", {"image_bytes": [b"\xff\0"]})
    np.testing.assert_array_equal(found["embedding"], np.array([[0.1, np.nan]], "float32"))
    texts = [found[name].tolist() for name in ("id", "label", "x_bytes")]
    assert texts == [[3], ["ü".encode()], [b"\xff"]]


def test_the_state_of_a_version_that_cannot_be_loaded():
    version = {"version": "3", "state": "LOADING", "status": {"error_message": "no memory"}}
    assert versions_in({"model_version_status": [version]}) == [(3, "LOADING", "no memory")]


def test_answers_come_in_order_and_only_so_many_are_under_way():
    free, three, taken = threading.Semaphore(3), threading.Barrier(3), []

    def slow(i):
        assert free.acquire(blocking=False)
        if i < 3:
            three.wait(10)  # which are under way at once
        time.sleep(0.02 * (3 - i % 4))
        free.release()
        if i == 12:
            raise ServingError("INTERNAL", "the last")
        return i

    answers = in_order(slow, (taken.append(i) or i for i in range(13)), 3)
    for i in range(12):
        assert next(answers) == i
        assert len(taken) <= i + 3  # not all of them are read at once
    with pytest.raises(ServingError, match="the last"):  # in the place of its item
        next(answers)
