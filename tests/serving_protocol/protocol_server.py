"""The protocol test server: what TF Serving answers to clients, in threads of this process.

It is no TF Serving: it neither batches, nor polls, nor measures.
"""

import base64
import contextlib
import http.server
import json
import re
import threading
from concurrent import futures
from typing import NamedTuple

import grpc
import tensorflow as tf
from google.protobuf import json_format, text_format
from sessions import RejectedError, Session
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_pb2,
    predict_pb2,
)
from tensorflow_serving.config import model_server_config_pb2

from tfdml.client.grpc_service import METHODS

HTTP_CODES = {
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "NOT_FOUND": 404,
    "UNIMPLEMENTED": 501,
}


class Ports(NamedTuple):
    grpc: int
    rest: int


class Models:
    """The sessions of the versions that a `models.config` names, and the labels of these."""

    def __init__(self, text):
        self.sessions, self.labels = {}, {}
        config = text_format.Parse(text, model_server_config_pb2.ModelServerConfig())
        for model in config.model_config_list.config:
            self.labels[model.name] = dict(model.version_labels)
            self.sessions[model.name] = {
                version: Session(f"{model.base_path}/{version}")
                for version in model.model_version_policy.specific.versions
            }

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


def metadata_of(models, request):
    version, session = models.find(request.model_spec)
    response = get_model_metadata_pb2.GetModelMetadataResponse(model_spec=request.model_spec)
    response.model_spec.version.value = version
    definitions = get_model_metadata_pb2.SignatureDefMap()
    for name, definition in session.signatures.items():
        definitions.signature_def[name].ParseFromString(definition.SerializeToString())
    response.metadata["signature_def"].Pack(definitions)
    return response


def status_of(models, request):
    spec = request.model_spec
    sessions = models.sessions.get(spec.name)
    if not sessions:
        raise RejectedError("NOT_FOUND", f"Could not find any versions of model {spec.name}")
    one = spec.HasField("version") or spec.version_label
    response = get_model_status_pb2.GetModelStatusResponse()
    for version in [models.find(spec)[0]] if one else sorted(sessions, reverse=True):
        status = response.model_version_status.add(version=version, state="AVAILABLE")
        status.status.error_message = ""
    return response


def predict(models, request):
    version, session = models.find(request.model_spec)
    signature = request.model_spec.signature_name or "serving_default"
    inputs = {name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
    found = session.run(signature, inputs)
    response = predict_pb2.PredictResponse(model_spec=request.model_spec)
    response.model_spec.version.value = version
    for name, array in found.items():
        response.outputs[name].CopyFrom(tf.make_tensor_proto(array))
    return response


FUNCTIONS = {"Predict": predict, "GetModelMetadata": metadata_of, "GetModelStatus": status_of}


class Methods(grpc.GenericRpcHandler):
    """The gRPC interface."""

    def __init__(self, models):
        self.models = models

    def service(self, handler_call_details):
        _, service, method = handler_call_details.method.split("/")
        expected, message, _ = METHODS[method]
        assert service == f"tensorflow.serving.{expected}"

        def answer(content, context):
            try:
                found = FUNCTIONS[method](self.models, message.FromString(content))
                return found.SerializeToString()
            except RejectedError as refusal:
                context.abort(getattr(grpc.StatusCode, refusal.code), str(refusal))

        return grpc.unary_unary_rpc_method_handler(answer)


class Handler(http.server.BaseHTTPRequestHandler):
    """The REST interface."""

    protocol_version = "HTTP/1.1"
    models = None

    def do_GET(self):
        self.answer(None)

    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers["Content-Length"])))

    def log_message(self, *_):
        pass

    def answer(self, body):
        try:
            code, text = 200, json.dumps(self.found(body), default=bytes.decode)
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
        method = {"/metadata": "GetModelMetadata", None: "GetModelStatus"}.get(path["method"])
        if method is None:
            return self.predicted(spec, json.loads(body))
        response = FUNCTIONS[method](self.models, METHODS[method][1](model_spec=spec))
        return json_format.MessageToDict(
            response, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )

    def predicted(self, spec, given):
        request = predict_pb2.PredictRequest(model_spec=spec)
        request.model_spec.signature_name = given.get("signature_name", "serving_default")
        _, session = self.models.find(spec)
        if definition := session.signatures.get(request.model_spec.signature_name):
            for name, values in given["inputs"].items():
                dtype = tf.as_dtype(definition.inputs[name].dtype)
                if dtype == tf.string:
                    values = [base64.b64decode(each["b64"]) for each in values]
                request.inputs[name].CopyFrom(tf.make_tensor_proto(values, dtype))
        outputs = predict(self.models, request).outputs
        outputs = {name: tf.make_ndarray(tensor).tolist() for name, tensor in outputs.items()}
        return {"outputs": outputs if len(outputs) > 1 else next(iter(outputs.values()))}


@contextlib.contextmanager
def serving(config):
    """The ports of a server of the models of a configuration, which is that of TF Serving."""
    models = Models(config)
    server = grpc.server(
        futures.ThreadPoolExecutor(8),
        [Methods(models)],
        options=[("grpc.max_receive_message_length", -1), ("grpc.so_reuseport", 0)],
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    handler = type("Handler", (Handler,), {"models": models})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as rest:
        threading.Thread(target=rest.serve_forever, args=(0.01,), daemon=True).start()
        yield Ports(port, rest.server_port)
        rest.shutdown()
    server.stop(0)
