"""Requests over gRPC."""

import math
import time

import grpc
import numpy as np

from tfdml.checks import Bare, check, check_type
from tfdml.client.protos import as_json, message
from tfdml.client.service import (
    LEAST_LIMIT,
    METADATA_LIMIT,
    Retries,
    ServingError,
    few,
    limit_of,
    metadata_in,
    versions_in,
    well_formed,
)

# Method -> its service, and the file of its messages.
_METHODS = {
    "Predict": ("PredictionService", "predict"),
    "GetModelMetadata": ("PredictionService", "get_model_metadata"),
    "GetModelStatus": ("ModelService", "get_model_status"),
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


class GrpcService:
    """The PredictionService and the ModelService of a server.

    Args:
        target: `host:port`.
        timeout: Seconds that a request may take, with its repetitions.
        headers: {name: text}, sent as metadata.
        tls: None, or {name: path or None}, as `connect` describes them.
        retries: Most repetitions of a request.

    Raises:
        ImportError: If tensorflow-serving-api is not installed.
    """

    def __init__(self, target, *, timeout, headers, tls, retries=0):
        _message("Predict", "Request")  # raises if the package is not installed
        self._headers = [(name.lower(), text) for name, text in headers.items()]
        self._timeout, self._retries = timeout, Retries(retries)
        self._target, self._credentials, self._channels = target, None, {}
        if tls is not None:
            files = (tls[name] for name in ("authority", "key", "certificate"))
            contents = (file and file.read_bytes() for file in files)
            self._credentials = grpc.ssl_channel_credentials(*contents)

    def close(self):
        for channel in self._channels.values():
            channel.close()

    def predict(self, model, signature, inputs):
        """Calls a signature.

        Args:
            model: `Model`.
            signature: Its name.
            inputs: {name: list of bytes, or array}.

        Returns:
            {name: array}; string outputs are object arrays of bytes.

        Raises:
            ServingError: If the request fails.
        """
        request = _request("Predict", model, signature)
        for name, value in inputs.items():
            _fill(request.inputs[name], value)
        limit = limit_of(inputs)

        def arrays_in(response):
            outputs = few(response.outputs)
            numbers = sum(math.prod(_shape(tensor)) for tensor in outputs.values())
            if 4 * numbers > limit:
                message = f"an answer of {numbers:,} numbers is larger than {limit:,} bytes"
                raise ServingError("RESOURCE_EXHAUSTED", message)
            return {name: _array(tensor) for name, tensor in outputs.items()}

        return self._send(arrays_in, "Predict", request, limit)

    def status(self, model):
        request = _request("GetModelStatus", model)
        return self._send(lambda answer: versions_in(as_json(answer)), "GetModelStatus", request)

    def metadata(self, model):
        request = _request("GetModelMetadata", model, metadata_field=["signature_def"])
        return self._send(lambda answer: metadata_in(as_json(answer)), "GetModelMetadata", request)

    def _send(self, read, method, request, limit=METADATA_LIMIT):
        """What `read` makes of the answer."""
        until = time.monotonic() + self._timeout
        call = self._channel(max(limit, LEAST_LIMIT)).unary_unary(
            f"/tensorflow.serving.{_METHODS[method][0]}/{method}",
            request_serializer=type(request).SerializeToString,
        )
        content = self._retries(self._answer, call, request, until, until=until)
        if len(content) > limit:
            message = f"an answer of {len(content):,} bytes is larger than {limit:,}"
            raise ServingError("RESOURCE_EXHAUSTED", message)
        with well_formed(f"one of TF Serving to {method}", content[:100]):
            return read(_message(method, "Response").FromString(content))

    def _answer(self, call, request, until):
        try:
            return call(request, timeout=until - time.monotonic(), metadata=self._headers)
        except grpc.RpcError as error:
            raise ServingError(error.code().name, error.details() or "no reason given") from error

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


def _message(method, end):
    """The class of the messages that a method takes or returns."""
    file = f"tensorflow_serving/apis/{_METHODS[method][1]}.proto"
    return message(file, f"tensorflow.serving.{method}{end}")


def _request(method, model, signature="", **fields):
    spec = {"name": model.name, "signature_name": signature}
    if model.version is not None:
        spec["version"] = {"value": model.version}
    elif model.label is not None:
        spec["version_label"] = model.label
    return _message(method, "Request")(model_spec=spec, **fields)


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
