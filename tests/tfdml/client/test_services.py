"""What gRPC and REST make of arrays, addresses, errors and retries."""

import http.server
import json
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from tfdml.client import connection, grpc_service, service
from tfdml.client.client import in_order
from tfdml.client.grpc_service import GrpcService
from tfdml.client.protos import message
from tfdml.client.rest_service import RestService
from tfdml.client.service import Model, ServingError, repeated

OPTIONS = {"timeout": 20.0, "headers": {}, "connections": 1}
FILES = {"authority": None, "certificate": None, "key": None}
TENSOR = message("tensorflow/core/framework/tensor.proto", "tensorflow.TensorProto")
MODEL = Model("embedder")


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
def test_the_scheme_names_the_protocol_and_its_port(address, kind, where):
    connected = connection.connect(address, FILES, **OPTIONS)
    assert type(connected) is kind
    assert where == (connected._target if kind is GrpcService else connected._address)
    connected.close()


@pytest.mark.parametrize(
    ("address", "files", "said"),
    [
        ("127.0.0.1:8500", {}, "must be grpc://host:8500"),
        ("ftp://host", {}, "Received: address='ftp://host'"),
        ("grpc://", {}, "must be grpc://host:8500"),
        ("grpc://host:x", {}, "must be grpc://host:8500"),
        ("grpc://host/path", {}, "a gRPC address must not have a path"),
        ("http://host", {"authority": "x"}, "require grpcs:// or https://"),
        ("grpcs://host", {"authority": "x.pem"}, "no file x.pem"),
        ("https://host", {"key": "x.pem"}, "must be given together"),
    ],
)
def test_addresses_and_files_that_cannot_be(address, files, said):
    with pytest.raises((ValueError, FileNotFoundError), match=said):
        connection.connect(address, {**FILES, **files}, **OPTIONS)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "bool"])
def test_tensors_are_those_of_tensorflow(dtype, rng):
    array = rng.integers(0, 2 if dtype == "bool" else 200, (2, 3)).astype(dtype)
    ours, theirs = TENSOR(), tf.make_tensor_proto(array)
    grpc_service._fill(ours, array)
    read_by_theirs = tf.make_ndarray(type(theirs).FromString(ours.SerializeToString()))
    np.testing.assert_array_equal(read_by_theirs, array)
    found = grpc_service._array(TENSOR.FromString(theirs.SerializeToString()))
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype


def test_lists_of_numbers_may_end_in_repetitions_and_texts_are_bytes():
    tensor = TENSOR(dtype=1, float_val=[1.0, 2.0])
    for side in (2, 2):
        tensor.tensor_shape.dim.add(size=side)
    np.testing.assert_array_equal(grpc_service._array(tensor), [[1, 2], [2, 2]])
    texts = [[b"a", b""], [b"\xff", b"d"]]
    theirs = tf.make_tensor_proto(texts).SerializeToString()
    assert grpc_service._array(TENSOR.FromString(theirs)).tolist() == texts


def test_numbers_of_other_types_are_rejected():
    with pytest.raises(TypeError, match=r"must be of float32, .*bool\. Received: dtype=float16"):
        grpc_service._fill(TENSOR(), np.zeros(2, np.float16))


class Canned(http.server.BaseHTTPRequestHandler):
    """Answers what the test has set."""

    status, content, asked, received = 200, b"", [], []

    def do_GET(self):
        self.do_POST()

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.asked.append((self.path, body))
        self.received.append(self.headers)
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.content)))
        self.end_headers()
        self.wfile.write(self.content)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def server():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Canned)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def canned(server, monkeypatch):
    """(service, class whose `status` and `content` are answered)."""
    for name, value in {"status": 200, "asked": [], "received": []}.items():
        monkeypatch.setattr(Canned, name, value)
    rest = RestService(f"http://127.0.0.1:{server.server_port}", tls=None, **OPTIONS)
    yield rest, Canned
    rest.close()


@pytest.mark.parametrize(
    ("status", "content", "said"),
    [
        (400, b'{"error": "bad image"}', "^INVALID_ARGUMENT: bad image$"),
        (404, b'{"error": "Servable not found"}', "^NOT_FOUND: Servable not found$"),
        (503, b'{"error": "queue full"}', "^UNAVAILABLE: queue full$"),
        (503, b"", "^UNAVAILABLE: .*status 503$"),
        (502, b"<html>Bad Gateway</html>", "^UNKNOWN: .*status 502$"),
        (413, b"", "^RESOURCE_EXHAUSTED: .*status 413$"),
        (200, b"<html>welcome</html>", "^INTERNAL: the answer is not"),
        (200, b'{"outputs": {"embedding": [[1, 2], [3]]}}', "^INTERNAL: the answer is not"),
    ],
)
def test_what_is_no_answer_is_an_error(status, content, said, canned):
    rest, canned = canned
    canned.status, canned.content = status, content
    with pytest.raises(ServingError, match=said):
        rest.predict(MODEL, "serving_default", {"image_bytes": [b"x"]})
    for ask in (rest.status, rest.metadata):
        with pytest.raises(ServingError):
            ask(MODEL)


def test_numbers_texts_and_nan_are_read(canned):
    rest, canned = canned
    outputs = '{"embedding": [[0.1, NaN]], "id": [3], "label": ["ü"], "x_bytes": [{"b64": "/w=="}]}'
    canned.content = f'{{"outputs": {outputs}}}'.encode()
    found = rest.predict(MODEL, "neighbours", {"image_bytes": [b"\xff\0"]})
    np.testing.assert_array_equal(found["embedding"], np.array([[0.1, np.nan]], "float32"))
    texts = [found[name].tolist() for name in ("id", "label", "x_bytes")]
    assert texts == [[3], ["ü".encode()], [b"\xff"]]
    ((path, body),) = canned.asked
    assert path == "/v1/models/embedder:predict"
    inputs = {"image_bytes": [{"b64": "/wA="}]}
    assert json.loads(body) == {"signature_name": "neighbours", "inputs": inputs}


@pytest.mark.parametrize("name", ["authorization", "Authorization", None])
def test_netrc_does_not_replace_the_given_header(name, server, canned, tmp_path, monkeypatch):
    (tmp_path / "netrc").write_text("default login someone password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    headers = {name: "Bearer token"} if name else {}
    address = f"http://127.0.0.1:{server.server_port}"
    rest = RestService(address, tls=None, **{**OPTIONS, "headers": headers})
    with pytest.raises(ServingError):
        rest.status(MODEL)
    rest.close()
    sent = Canned.received[0]["Authorization"]
    assert sent == "Bearer token" if name else sent.startswith("Basic")


@pytest.mark.parametrize(
    ("model", "path"),
    [
        (Model("m"), "/v1/models/m"),
        (Model("m", version=3), "/v1/models/m/versions/3"),
        (Model("m", label="canary"), "/v1/models/m/labels/canary"),
    ],
)
def test_versions_and_labels_stand_in_the_path(model, path, canned):
    rest, canned = canned
    version = {"version": "3", "state": "LOADING", "status": {"error_message": "no memory"}}
    canned.content = json.dumps({"model_version_status": [version]}).encode()
    assert rest.status(model) == [(3, "LOADING", "no memory")]
    assert canned.asked == [(path, b"")]


@pytest.fixture
def pauses(monkeypatch):
    found = []
    monkeypatch.setattr(service, "sleep", found.append)
    return found


def failing(times, code="UNAVAILABLE"):
    """A function that fails so many times, and counts its calls."""
    calls = []

    def function():
        calls.append(None)
        if len(calls) <= times:
            raise ServingError(code, "not now")
        return len(calls)

    return function, calls


def test_pauses_double_up_to_ten_seconds_and_differ(pauses):
    assert repeated(failing(8)[0], 8) == 9
    longest = [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    shares = [pause / most for pause, most in zip(pauses, longest, strict=True)]
    assert all(0.5 <= share < 1 for share in shares)
    assert len(set(shares)) == 8


@pytest.mark.parametrize(
    ("code", "attempts"),
    [("UNAVAILABLE", 3), ("DEADLINE_EXCEEDED", 1), ("INTERNAL", 1), ("INVALID_ARGUMENT", 1)],
)
def test_the_last_failure_is_raised_and_only_some_are_repeated(code, attempts, pauses):
    function, calls = failing(3, code)
    with pytest.raises(ServingError, match=f"{code}: not now"):
        repeated(function, 2)
    assert len(calls) == attempts


def test_answers_come_in_order_and_only_so_many_are_under_way():
    lock, under_way, most, taken, found = threading.Lock(), [0], [0], [], []

    def slow(i):
        with lock:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
        time.sleep(0.02 * (3 - i % 4))
        with lock:
            under_way[0] -= 1
        if i == 12:
            raise ServingError("INTERNAL", "the last")
        return i

    def items():
        for i in range(13):
            taken.append(i)
            yield i

    answers = in_order(slow, items(), 3)
    for _ in range(12):
        found.append(next(answers))
        assert len(taken) <= len(found) + 2  # not all of them are read at once
    with pytest.raises(ServingError, match="the last"):  # in the place of its item
        next(answers)
    assert found == list(range(12))
    assert most[0] == 3
