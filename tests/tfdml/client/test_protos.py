import subprocess
import sys

import pytest

from tfdml.client import Client


def test_a_client_imports_neither_tensorflow_nor_keras_which_can_follow():
    program = (
        "import sys; from tfdml.client import Client\n"
        'for address in ("grpc://127.0.0.1:1", "http://127.0.0.1:1"):\n'
        '    Client(address, model="x").close()\n'
        'print(*{"tensorflow", "keras", "sklearn"} & set(sys.modules))\n'
        "import tensorflow as tf; from tensorflow_serving.apis import predict_pb2\n"
        "request = predict_pb2.PredictRequest()\n"
        'request.inputs["x"].CopyFrom(tf.make_tensor_proto([1.0, 2.0]))\n'
        'print(tf.reduce_sum(tf.make_ndarray(request.inputs["x"])).numpy())\n'
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, "\n3.0\n"), run.stderr


def test_a_package_that_is_not_installed_is_named(monkeypatch):
    for name in ("grpc_service", "protos"):
        monkeypatch.delitem(sys.modules, f"tfdml.client.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "tensorflow_serving.apis", None)
    with pytest.raises(ImportError, match=r"tensorflow-serving-api .*: pip .*http:// address"):
        Client("grpc://127.0.0.1:1", model="x")
