"""Requests over gRPC."""

import importlib.util
import math
import sys
from time import monotonic

import grpc
import numpy as np
from google.protobuf import json_format

from tfdml.checks import Bare, check, check_type
from tfdml.client.service import (
    LEAST_LIMIT,
    METADATA_LIMIT,
    Service,
    ServingError,
    few,
    limit_of,
    metadata_in,
    versions_in,
)

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
    # Few compressed bytes could hold more than any limit.
    ("grpc.compression_enabled_algorithms_bitset", 1),
    ("grpc.per_message_decompression", 0),
    # Otherwise the channel waits longer than the client between its attempts.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 5000),
]
_MOST_SIDES = 64  # of an array of NumPy
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

    def __init__(self, target, *, timeout, headers, tls, retries=0):
        super().__init__(timeout, retries)
        self._headers = [(name.lower(), text) for name, text in headers.items()]
        self._target, self._credentials, self._channels = target, None, {}
        if tls is not None:
            files = (tls[name] for name in ("authority", "key", "certificate"))
            contents = (file and file.read_bytes() for file in files)
            self._credentials = grpc.ssl_channel_credentials(*contents)

    def close(self):
        for channel in self._channels.values():
            channel.close()

    def predict(self, model, signature, inputs):
        request = _request("Predict", model, signature)
        for name, value in inputs.items():
            _fill(request.inputs[name], value)
        limit = limit_of(inputs)

        def arrays_in(response):
            outputs = few(response.outputs)
            numbers = sum(math.prod(_shape(tensor)) for tensor in outputs.values())
            _check_limit(4 * numbers <= limit, f"{numbers:,} numbers", f"{limit:,} bytes")
            return {name: _array(tensor) for name, tensor in outputs.items()}

        return self._call("Predict", request, arrays_in, limit)

    def status(self, model):
        request = _request("GetModelStatus", model)
        return self._call("GetModelStatus", request, lambda answer: versions_in(_json(answer)))

    def metadata(self, model):
        request = _request("GetModelMetadata", model, metadata_field=["signature_def"])
        return self._call("GetModelMetadata", request, lambda answer: metadata_in(_json(answer)))

    def _call(self, method, request, read, limit=METADATA_LIMIT):
        service, _, response = METHODS[method]
        call = self._channel(max(limit, LEAST_LIMIT)).unary_unary(
            f"/tensorflow.serving.{service}/{method}",
            request_serializer=type(request).SerializeToString,
        )

        def send(until):
            try:
                content = call(request, timeout=until - monotonic(), metadata=self._headers)
            except grpc.RpcError as error:
                reason = error.details() or "no reason given"
                raise ServingError(error.code().name, reason) from error
            _check_limit(len(content) <= limit, f"{len(content):,} bytes", f"{limit:,}")
            return content

        def parsed(content):
            return read(response.FromString(content))

        return self._ask(send, parsed, f"one of TF Serving to {method}")

    def _channel(self, limit):
        """The channel for answers of so many bytes: the limit is fixed when a channel is opened."""
        if limit not in self._channels:
            options = [*_OPTIONS, ("grpc.max_receive_message_length", min(limit, 2**31 - 1))]
            if self._credentials is None:
                channel = grpc.insecure_channel(self._target, options)
            else:
                channel = grpc.secure_channel(self._target, self._credentials, options)
            self._channels[limit] = channel
        return self._channels[limit]


def _check_limit(holds, size, limit):
    if not holds:
        raise ServingError("RESOURCE_EXHAUSTED", f"an answer of {size} is larger than {limit}")


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


def _shape(tensor):
    shape = [dimension.size for dimension in tensor.tensor_shape.dim]
    check(len(shape) <= _MOST_SIDES, f"at most {_MOST_SIDES} sides", sides=len(shape))
    check(min(shape, default=0) >= 0, "the sides of an array must be >= 0", shape=shape)
    return shape


def _array(tensor):
    """The array of a `TensorProto`: bytes, or a list whose last number repeats as needed."""
    shape = _shape(tensor)
    if tensor.dtype == _STRING:
        return np.array([*tensor.string_val, None], object)[:-1].reshape(shape)
    dtype, field = _TYPES[tensor.dtype]
    if tensor.tensor_content:
        return np.frombuffer(tensor.tensor_content, dtype).reshape(shape)
    numbers = np.array(getattr(tensor, field), dtype)
    missing = math.prod(shape) - len(numbers)
    return np.pad(numbers, (0, missing), "edge").reshape(shape)
