"""The protocol test server: what TF Serving answers to clients, for tests.

    python tests/serving_protocol/protocol_server.py --port 8500 --rest_api_port 8501 \\
        --model_name embedder --model_base_path /models/embedder

It stands in for `tensorflow_model_server` where none can be installed: it takes the same flags,
answers by the servicer classes of tensorflow-serving-api and by the paths of the REST interface,
runs the models by the C API of TensorFlow, and replays their warm-up records. It is no TF Serving:
it neither batches, nor polls, nor measures. It rejects as UNAVAILABLE the first requests with a
header `test-fault: TIMES:KEY` of this key.
"""

import argparse
import base64
import collections
import http.server
import importlib.util
import json
import pathlib
import re
import signal
import struct
import sys
import threading
from concurrent import futures

import numpy as np
from c_api import DTYPES, STRING, RejectedError, Session

# The servicer classes import messages from the package `tensorflow`: its modules are found, what
# it runs when it is imported, all of TensorFlow and Keras, is not run.
sys.modules["tensorflow"] = importlib.util.module_from_spec(importlib.util.find_spec("tensorflow"))

import grpc  # noqa: E402
from google.protobuf import json_format, text_format  # noqa: E402
from tensorflow.core.framework import tensor_pb2  # noqa: E402
from tensorflow_serving.apis import (  # noqa: E402
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_log_pb2,
    prediction_service_pb2_grpc,
)
from tensorflow_serving.config import model_server_config_pb2  # noqa: E402

HTTP_CODES = {
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "NOT_FOUND": 404,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
}
FIELDS = {
    1: "float_val",
    2: "double_val",
    3: "int_val",
    4: "int_val",
    9: "int64_val",
    10: "bool_val",
}
FAULT = "test-fault"


class Models:
    """The sessions of all versions that are served, and the labels of these."""

    def __init__(self, config, labels_may_wait):
        self.sessions, self.labels = {}, {}
        for model in config.model_config_list.config:
            versions = sorted(
                int(path.name) for path in pathlib.Path(model.base_path).glob("[0-9]*")
            )
            policy = model.model_version_policy
            if policy.HasField("specific"):
                versions = list(policy.specific.versions)
            elif not policy.HasField("all"):
                versions = versions[-max(1, policy.latest.num_versions) :]
            if model.version_labels and not labels_may_wait:
                raise SystemExit("labels of versions that are not loaded: allow them by the flag")
            self.labels[model.name] = dict(model.version_labels)
            self.sessions[model.name] = {
                version: Session(f"{model.base_path}/{version}") for version in versions
            }
            for version in versions:
                self.warm_up(f"{model.base_path}/{version}", self.sessions[model.name][version])

    def warm_up(self, path, session):
        for record in records(path):
            log = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
            predict(session, log.model_spec.signature_name, arrays_of(log.inputs))
            print("warmed up", path, log.model_spec.signature_name, flush=True)

    def find(self, spec):
        """(version, session) of a `ModelSpec`."""
        sessions = self.sessions.get(spec.name)
        if not sessions:
            raise RejectedError("NOT_FOUND", f"Servable not found for request: Latest({spec.name})")
        version = max(sessions)
        if spec.HasField("version"):
            version = spec.version.value
        elif spec.version_label:
            if spec.version_label not in self.labels[spec.name]:
                raise RejectedError(
                    "INVALID_ARGUMENT", f"Unrecognized servable version label: {spec.version_label}"
                )
            version = self.labels[spec.name][spec.version_label]
        if version not in sessions:
            raise RejectedError(
                "NOT_FOUND", f"Servable not found for request: Specific({spec.name}, {version})"
            )
        return version, sessions[version]


def records(path):
    """The records of the warm-up file of a version, without their checksums."""
    file = pathlib.Path(path, "assets.extra", "tf_serving_warmup_requests")
    content, first = file.read_bytes() if file.is_file() else b"", 0
    while first < len(content):
        (length,) = struct.unpack_from("<Q", content, first)
        yield content[first + 12 : first + 12 + length]
        first += 16 + length


def predict(session, signature, inputs):
    definition = session.signatures.get(signature or "serving_default")
    if definition is None:
        text = f'Serving signature name: "{signature}" not found in signature def'
        raise RejectedError("INVALID_ARGUMENT", text)
    if set(definition.inputs) != set(inputs):
        text = f"input size does not match signature: {sorted(inputs)}, {sorted(definition.inputs)}"
        raise RejectedError("INVALID_ARGUMENT", text)
    return session.run(signature or "serving_default", inputs)


def arrays_of(inputs):
    """{name: list of bytes, or array} of {name: `TensorProto`}."""
    return {name: array_of(tensor) for name, tensor in inputs.items()}


def array_of(tensor):
    shape = [dimension.size for dimension in tensor.tensor_shape.dim]
    count = int(np.prod(shape, dtype=object))
    if tensor.dtype == STRING:
        if count != len(tensor.string_val) or len(shape) != 1:
            raise RejectedError(
                "INVALID_ARGUMENT", "a tensor of strings must have one for each place"
            )
        return list(tensor.string_val)
    if tensor.dtype not in DTYPES:
        raise RejectedError("INVALID_ARGUMENT", f"no tensors of type {tensor.dtype}")
    values = np.frombuffer(tensor.tensor_content, DTYPES[tensor.dtype])
    if not tensor.tensor_content:
        values = np.array(getattr(tensor, FIELDS[tensor.dtype]), DTYPES[tensor.dtype])
    if min(shape, default=1) < 0 or len(values) != count:
        raise RejectedError(
            "INVALID_ARGUMENT", f"{len(values)} numbers are no tensor of shape {shape}"
        )
    return values.reshape(shape)


def tensor_of(array):
    if array.dtype == object:
        tensor = tensor_pb2.TensorProto(dtype=STRING, string_val=array.ravel().tolist())
    else:
        number = next(number for number, dtype in DTYPES.items() if array.dtype == dtype)
        tensor = tensor_pb2.TensorProto(dtype=number, **{FIELDS[number]: array.ravel().tolist()})
    for side in array.shape:
        tensor.tensor_shape.dim.add(size=side)
    return tensor


def metadata_of(models, spec):
    version, session = models.find(spec)
    response = get_model_metadata_pb2.GetModelMetadataResponse()
    response.model_spec.name, response.model_spec.version.value = spec.name, version
    definitions = get_model_metadata_pb2.SignatureDefMap()
    for name, definition in session.signatures.items():
        definitions.signature_def[name].ParseFromString(definition.SerializeToString())
    response.metadata["signature_def"].Pack(definitions)
    return response, definitions


def status_of(models, spec):
    sessions = models.sessions.get(spec.name)
    if not sessions:
        raise RejectedError("NOT_FOUND", f"Could not find any versions of model {spec.name}")
    one = spec.HasField("version") or spec.version_label
    response = get_model_status_pb2.GetModelStatusResponse()
    for version in [models.find(spec)[0]] if one else sorted(sessions, reverse=True):
        status = response.model_version_status.add(version=version, state="AVAILABLE")
        status.status.error_message = ""
    return response


def refusing(method):
    """A method of a servicer, whose refusals become the status of the call."""

    def called(self, request, context):
        try:
            return method(self, request)
        except RejectedError as refusal:
            context.abort(getattr(grpc.StatusCode, refusal.code), str(refusal))

    return called


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    def __init__(self, models):
        self.models = models

    @refusing
    def Predict(self, request):  # noqa: N802
        version, session = self.models.find(request.model_spec)
        found = predict(session, request.model_spec.signature_name, arrays_of(request.inputs))
        response = predict_pb2.PredictResponse(model_spec=request.model_spec)
        response.model_spec.version.value = version
        for name, array in found.items():
            response.outputs[name].CopyFrom(tensor_of(array))
        return response

    @refusing
    def GetModelMetadata(self, request):  # noqa: N802
        return metadata_of(self.models, request.model_spec)[0]


class ModelService(model_service_pb2_grpc.ModelServiceServicer):
    def __init__(self, models):
        self.models = models

    @refusing
    def GetModelStatus(self, request):  # noqa: N802
        return status_of(self.models, request.model_spec)


class Faults(grpc.ServerInterceptor):
    """Rejects requests of a header, and counts them; calls by gRPC as an interceptor."""

    def __init__(self):
        self.seen = collections.Counter()

    def apply(self, fault):
        self.seen[fault] += 1
        if fault and self.seen[fault] <= int(fault.partition(":")[0]):
            raise RejectedError("UNAVAILABLE", "The batch scheduling queue is full")

    def intercept_service(self, continuation, call):
        handler, headers = continuation(call), dict(call.invocation_metadata)

        def answer(request, context):
            try:
                self.apply(headers.get(FAULT))
            except RejectedError as refusal:
                context.abort(getattr(grpc.StatusCode, refusal.code), str(refusal))
            return handler.unary_unary(request, context)

        return grpc.unary_unary_rpc_method_handler(
            answer, handler.request_deserializer, handler.response_serializer
        )


class Handler(http.server.BaseHTTPRequestHandler):
    """The REST interface."""

    protocol_version = "HTTP/1.1"
    models = faults = None

    def do_GET(self):
        self.answer(None)

    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers["Content-Length"])))

    def log_message(self, *_):
        pass

    def answer(self, body):
        try:
            self.faults.apply(self.headers[FAULT])
            code, text = 200, json.dumps(self.found(body))
        except RejectedError as refusal:
            code, text = HTTP_CODES.get(refusal.code, 500), json.dumps({"error": str(refusal)})
        content = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def found(self, body):
        path = re.fullmatch(
            r"/v1/models/(?P<name>[^/:]+)(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
            r"(?P<method>/metadata|:predict)?",
            self.path,
        )
        if path is None or (path["method"] == ":predict") != (body is not None):
            raise RejectedError("NOT_FOUND", f"Malformed request: {self.command} {self.path}")
        spec = model_pb2.ModelSpec(name=path["name"], version_label=path["label"])
        if path["version"]:
            spec.version.value = int(path["version"])
        if path["method"] == ":predict":
            return self.predicted(spec, body)
        if path["method"] == "/metadata":
            response, definitions = metadata_of(self.models, spec)
            spec, definitions = (
                json_format.MessageToDict(each, preserving_proto_field_name=True)
                for each in (response.model_spec, definitions)
            )
            return {"model_spec": spec, "metadata": {"signature_def": definitions}}
        response = status_of(self.models, spec)
        return json_format.MessageToDict(
            response, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )

    def predicted(self, spec, body):
        try:
            request = json.loads(body)
            signature = request.get("signature_name", "serving_default")
            _, session = self.models.find(spec)
            definition = session.signatures.get(signature)
            columns, inputs = request["inputs"], {}
            expected = definition.inputs if definition else {}
            if len(expected) == 1 and not (isinstance(columns, dict) and {*expected} & {*columns}):
                columns = dict.fromkeys(expected, columns)
            for name in columns if expected else ():
                dtype = expected[name].dtype
                inputs[name] = (
                    [base64.b64decode(each["b64"]) for each in columns[name]]
                    if dtype == STRING
                    else np.array(columns[name], DTYPES[dtype])
                )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RejectedError("INVALID_ARGUMENT", f"JSON Parse error: {error!r}") from error
        found = predict(session, signature, inputs)
        outputs = {name: array.tolist() for name, array in found.items()}
        return {"outputs": outputs if len(outputs) > 1 else next(iter(outputs.values()))}


def config_of(flags):
    config = model_server_config_pb2.ModelServerConfig()
    if flags.model_config_file:
        text_format.Parse(pathlib.Path(flags.model_config_file).read_text(), config)
    else:
        config.model_config_list.config.add(
            name=flags.model_name, base_path=flags.model_base_path, model_platform="tensorflow"
        )
    return config


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--rest_api_port", type=int, required=True)
    parser.add_argument("--model_name", default="default")
    parser.add_argument("--model_base_path")
    parser.add_argument("--model_config_file")
    parser.add_argument("--allow_version_labels_for_unavailable_models", default="false")
    flags = parser.parse_args()
    models = Models(config_of(flags), flags.allow_version_labels_for_unavailable_models == "true")
    faults = Faults()
    server = grpc.server(
        futures.ThreadPoolExecutor(8),
        options=[("grpc.max_receive_message_length", -1), ("grpc.so_reuseport", 0)],
        interceptors=[faults],
    )
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        PredictionService(models), server
    )
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(ModelService(models), server)
    server.add_insecure_port(f"127.0.0.1:{flags.port}")
    server.start()
    Handler.models, Handler.faults = models, faults
    rest = http.server.ThreadingHTTPServer(("127.0.0.1", flags.rest_api_port), Handler)
    threading.Thread(target=rest.serve_forever, daemon=True).start()
    assert not {"keras", "tensorflow.python"} & set(sys.modules)
    print("serving", flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    server.stop(0)
    rest.shutdown()


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main()
