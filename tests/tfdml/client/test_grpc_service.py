import subprocess
import sys

import pytest

from tfdml.client import Client

CLIENTS = """
import sys
from tfdml.client import Client
for address in ("grpc://127.0.0.1:1", "http://127.0.0.1:1"):
    Client(address, model="x").close()
print(*{"tensorflow", "keras", "sklearn"} & set(sys.modules))
"""
TENSORFLOW = """
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2
request = predict_pb2.PredictRequest()
request.inputs["x"].CopyFrom(tf.make_tensor_proto([1.0, 2.0]))
print(tf.reduce_sum(tf.make_ndarray(request.inputs["x"])).numpy())
"""


@pytest.mark.parametrize(
    ("program", "said"),
    [(CLIENTS, "\n"), pytest.param(CLIENTS + TENSORFLOW, "\n3.0\n", marks=pytest.mark.slow)],
    ids=["clients", "tensorflow afterwards"],
)
def test_a_client_imports_neither_tensorflow_nor_keras_which_can_follow(program, said):
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, said), run.stderr


def test_a_package_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "tfdml.client.grpc_service", raising=False)
    monkeypatch.setitem(sys.modules, "tensorflow_serving.apis", None)
    with pytest.raises(ImportError, match=r"tensorflow-serving-api .*: pip .*http:// address"):
        Client("grpc://127.0.0.1:1", model="x")
