"""Requests over gRPC."""

import grpc
import numpy as np

from tfdml.checks import Bare, check_type
from tfdml.client.protos import as_json, message
from tfdml.client.service import ServingError, metadata_in, versions_in

# Method -> its service, and the file of its messages.
_METHODS = {
    "Predict": ("PredictionService", "predict"),
    "GetModelMetadata": ("PredictionService", "get_model_metadata"),
    "GetModelStatus": ("ModelService", "get_model_status"),
}
_OPTIONS = [
    # No limit: the default of 4 MB holds 8,192 embeddings.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Otherwise the channel waits longer than the client between its attempts.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
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


class GrpcService:
    """The PredictionService and the ModelService of a server.

    Args:
        target: `host:port`.
        timeout: Seconds that a request may take.
        headers: {name: text}, sent as metadata.
        tls: None, or {name: path or None}, as `connect` describes them.

    Raises:
        ImportError: If tensorflow-serving-api is not installed.
    """

    def __init__(self, target, *, timeout, headers, tls):
        _message("Predict", "Request")  # raises if the package is not installed
        headers = [(name.lower(), text) for name, text in headers.items()]
        self._sent_along = {"timeout": timeout, "metadata": headers}
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
        response = self._send("Predict", request)
        return {name: _array(tensor) for name, tensor in response.outputs.items()}

    def status(self, model):
        return versions_in(as_json(self._send("GetModelStatus", _request("GetModelStatus", model))))

    def metadata(self, model):
        request = _request("GetModelMetadata", model, metadata_field=["signature_def"])
        return metadata_in(as_json(self._send("GetModelMetadata", request)))

    def _send(self, method, request):
        call = self._channel.unary_unary(
            f"/tensorflow.serving.{_METHODS[method][0]}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=_message(method, "Response").FromString,
        )
        try:
            return call(request, **self._sent_along)
        except grpc.RpcError as error:
            raise ServingError(error.code().name, error.details() or "no reason given") from error


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


def _array(tensor):
    """The array of a `TensorProto`: bytes, or a list whose last number repeats as needed."""
    shape = [dimension.size for dimension in tensor.tensor_shape.dim]
    try:
        if tensor.dtype == _STRING:
            return np.array([*tensor.string_val, None], object)[:-1].reshape(shape)
        dtype, field = _TYPES[tensor.dtype]
        if tensor.tensor_content:
            return np.frombuffer(tensor.tensor_content, dtype).reshape(shape)
        numbers = np.array(getattr(tensor, field), dtype)
        missing = int(np.prod(shape)) - len(numbers)
        return np.pad(numbers, (0, missing), "edge").reshape(shape)
    except (ValueError, KeyError) as error:
        raise ServingError("INTERNAL", f"the answer is not a valid tensor ({error})") from error
