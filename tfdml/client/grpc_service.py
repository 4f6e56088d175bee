"""Requests over gRPC."""

import importlib.util
import math
import sys
from time import monotonic

import grpc
import numpy as np
from google.protobuf import json_format

from tfdml.checks import Bare, check_type
from tfdml.client.service import Service, ServingError, metadata_in, versions_in

# The messages of tensorflow-serving-api import those of the package `tensorflow`, and with it all
# of TensorFlow and Keras, unless an empty module stands in for it meanwhile.
_spec = None if "tensorflow" in sys.modules else importlib.util.find_spec("tensorflow")
if _spec is not None:
    sys.modules["tensorflow"] = importlib.util.module_from_spec(_spec)
try:
    from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, predict_pb2
finally:
    if _spec is not None:
        del sys.modules["tensorflow"]

METHODS = {  # of a server -> its service, and the messages that it takes and returns
    name: (service, getattr(messages, f"{name}Request"), getattr(messages, f"{name}Response"))
    for name, service, messages in (
        ("Predict", "PredictionService", predict_pb2),
        ("GetModelMetadata", "PredictionService", get_model_metadata_pb2),
        ("GetModelStatus", "ModelService", get_model_status_pb2),
    )
}
_OPTIONS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # Otherwise the channel waits longer than the client between its attempts. The minimum stays at
    # gRPC's 20 s, as it limits the time to connect too.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 5000),
]
_STRING = 7  # of `tensorflow.DataType`, as the numbers below
# Number of a type -> it, and the field of a `TensorProto` with a list of its numbers.
_TYPES = {
    1: (np.float32, "float_val"),
    2: (np.float64, "double_val"),
    3: (np.int32, "int_val"),
    4: (np.uint8, "int_val"),
    9: (np.int64, "int64_val"),
    10: (np.bool_, "bool_val"),
}


class GrpcService(Service):
    """The PredictionService and the ModelService of a server, at `host:port`."""

    def __init__(self, target, *, timeout, headers, tls, retries):
        super().__init__(timeout, retries)
        self._headers = tuple((name.lower(), text) for name, text in headers.items())
        if tls is None:
            self._channel = grpc.insecure_channel(target, _OPTIONS)
        else:
            files = (tls[name] for name in ("authority", "key", "certificate"))
            contents = (file and file.read_bytes() for file in files)
            credentials = grpc.ssl_channel_credentials(*contents)
            self._channel = grpc.secure_channel(target, credentials, _OPTIONS)

    def close(self):
        self._channel.close()

    def predict(self, model, signature, inputs):
        request = _request("Predict", model, signature)
        for name, value in inputs.items():
            _fill(request.inputs[name], value)

        def arrays_in(response):
            return {name: _array(tensor) for name, tensor in response.outputs.items()}

        return self._call("Predict", request, arrays_in)

    def status(self, model):
        request = _request("GetModelStatus", model)
        return self._call("GetModelStatus", request, lambda answer: versions_in(_json(answer)))

    def metadata(self, model):
        request = _request("GetModelMetadata", model, metadata_field=["signature_def"])
        return self._call("GetModelMetadata", request, lambda answer: metadata_in(_json(answer)))

    def _call(self, method, request, read):
        service, _, response = METHODS[method]
        call = self._channel.unary_unary(
            f"/tensorflow.serving.{service}/{method}",
            request_serializer=type(request).SerializeToString,
        )

        def send(until):
            try:
                return call(request, timeout=until - monotonic(), metadata=self._headers)
            except grpc.RpcError as error:
                reason = error.details() or "no reason given"
                raise ServingError(error.code().name, reason) from error

        def parsed(content):
            return read(response.FromString(content))

        return self._ask(send, parsed, f"one of TF Serving to {method}")


def _json(answer):
    """A message as the dictionaries, lists and texts of TF Serving's REST interface."""
    return json_format.MessageToDict(answer, preserving_proto_field_name=True)


def _request(method, model, signature="", **fields):
    spec = {"name": model.name, "signature_name": signature}
    if model.version is not None:
        spec["version"] = {"value": model.version}
    elif model.label is not None:
        spec["version_label"] = model.label
    return METHODS[method][1](model_spec=spec, **fields)


def _fill(tensor, value):
    """Sets a `TensorProto` to a list of bytes or an array."""
    if isinstance(value, list):
        tensor.dtype, shape = _STRING, (len(value),)
        tensor.string_val.extend(value)
    else:
        value = np.asarray(value)
        numbers = [number for number, (dtype, _) in _TYPES.items() if value.dtype == dtype]
        names = ", ".join(np.dtype(dtype).name for dtype, _ in _TYPES.values())
        check_type(numbers, f"arrays to send must be of {names}", dtype=Bare(value.dtype))
        (tensor.dtype,) = numbers
        tensor.tensor_content, shape = value.tobytes(), value.shape
    for side in shape:
        tensor.tensor_shape.dim.add(size=side)


def _array(tensor):
    """The array of a `TensorProto`: bytes, or a list whose last number repeats as needed."""
    shape = [dimension.size for dimension in tensor.tensor_shape.dim]
    if tensor.dtype == _STRING:
        return np.array([*tensor.string_val, None], object)[:-1].reshape(shape)
    dtype, field = _TYPES[tensor.dtype]
    if tensor.tensor_content:
        return np.frombuffer(tensor.tensor_content, dtype).reshape(shape)
    numbers = np.array(getattr(tensor, field), dtype)
    missing = math.prod(shape) - len(numbers)
    return np.pad(numbers, (0, missing), "edge").reshape(shape)
