import http.server
import json
import threading

import numpy as np
import pytest

from tfdml.client.rest_service import RestService
from tfdml.client.service import Model, ServingError

MODEL = Model("embedder")


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


@pytest.fixture
def canned():
    """(service, class whose `status` and `content` are answered)."""
    handler = type("Handler", (Canned,), {"asked": [], "received": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    handler.port = server.server_port
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    service = RestService(address, timeout=20.0, headers={}, tls=None, connections=1)
    yield service, handler
    service.close()
    server.shutdown()
    server.server_close()


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
        (200, b'{"hello": 1}', "^INTERNAL: the answer is not"),
        (200, b"[1]", "^INTERNAL: the answer is not"),
        (200, b'{"outputs": {"embedding": [[1, 2], [3]]}}', "^INTERNAL: the answer is not"),
    ],
)
def test_what_is_no_answer_is_an_error(status, content, said, canned):
    service, handler = canned
    handler.status, handler.content = status, content
    with pytest.raises(ServingError, match=said):
        service.predict(MODEL, "serving_default", {"image_bytes": [b"x"]})
    for ask in (service.status, service.metadata):
        with pytest.raises(ServingError):
            ask(MODEL)


def test_numbers_texts_and_nan_are_read(canned):
    service, handler = canned
    outputs = '{"embedding": [[0.1, NaN]], "id": [3], "label": ["ü"], "x_bytes": [{"b64": "/w=="}]}'
    handler.content = f'{{"outputs": {outputs}}}'.encode()
    found = service.predict(MODEL, "neighbours", {"image_bytes": [b"\xff\0"]})
    np.testing.assert_array_equal(found["embedding"], np.array([[0.1, np.nan]], "float32"))
    assert [found[name].tolist() for name in ("id", "label", "x_bytes")] == [
        [3],
        ["ü".encode()],
        [b"\xff"],
    ]
    ((path, body),) = handler.asked
    assert path == "/v1/models/embedder:predict"
    assert json.loads(body) == {
        "signature_name": "neighbours",
        "inputs": {"image_bytes": [{"b64": "/wA="}]},
    }


@pytest.mark.parametrize("name", ["authorization", "Authorization", None])
def test_netrc_does_not_replace_the_given_header(name, canned, tmp_path, monkeypatch):
    (tmp_path / "netrc").write_text("default login someone password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    (_, handler), headers = canned, {name: "Bearer token"} if name else {}
    address = f"http://127.0.0.1:{handler.port}"
    service = RestService(address, timeout=20.0, headers=headers, tls=None, connections=1)
    with pytest.raises(ServingError):
        service.status(MODEL)
    service.close()
    [received] = handler.received
    sent = received["Authorization"]
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
    service, handler = canned
    version = {"version": "3", "state": "LOADING", "status": {"error_message": "no memory"}}
    handler.content = json.dumps({"model_version_status": [version]}).encode()
    assert service.status(model) == [(3, "LOADING", "no memory")]
    assert handler.asked == [(path, b"")]
