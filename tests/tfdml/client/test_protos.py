import subprocess
import sys

import pytest
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import predict_pb2

from tfdml.client import protos

PREDICT = "tensorflow_serving/apis/predict.proto"


def test_messages_are_those_of_tensorflow_serving_api():
    ours = protos.message(PREDICT, "tensorflow.serving.PredictRequest")()
    theirs = predict_pb2.PredictRequest()
    assert type(ours) is not type(theirs)
    for request in (ours, theirs):
        request.model_spec.name, request.model_spec.version.value = "embedder", 2
        tensor = request.inputs["image_bytes"]
        tensor.dtype = 7
        tensor.tensor_shape.dim.add(size=2)
        tensor.string_val.extend([b"a", b"\xff"])
    content = theirs.SerializeToString(deterministic=True)
    assert ours.SerializeToString(deterministic=True) == content
    assert len(content) > 20


def test_files_that_import_those_of_xla_are_found():
    saved = protos.message("tensorflow/core/protobuf/saved_model.proto", "tensorflow.SavedModel")
    ours = saved()
    ours.meta_graphs.add().signature_def["serving_default"].inputs["image_bytes"].name = "x:0"
    theirs = saved_model_pb2.SavedModel.FromString(ours.SerializeToString())
    inputs = theirs.meta_graphs[0].signature_def["serving_default"].inputs
    assert inputs["image_bytes"].name == "x:0"


def test_a_package_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr(protos.importlib.util, "find_spec", lambda name: None)
    protos._add.cache_clear()
    with pytest.raises(ImportError, match=r"tensorflow_serving/apis/input.proto: .* pip"):
        protos.message("tensorflow_serving/apis/input.proto", "tensorflow.serving.Input")


def test_a_client_imports_neither_tensorflow_nor_keras():
    program = (
        "import sys; from tfdml.client import Client\n"
        'for address in ("grpc://127.0.0.1:1", "http://127.0.0.1:1"):\n'
        '    Client(address, model="x").close()\n'
        'print(*{"tensorflow", "keras", "sklearn"} & set(sys.modules))\n'
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (run.returncode, run.stdout.strip()) == (0, ""), run.stderr
