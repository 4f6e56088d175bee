"""Servers that mean harm: only a `ServingError` comes of it, in time and in little memory."""

import contextlib
import pathlib
import sys
import time

import hostile
import numpy as np
import pytest

from tfdml.client import Client, ServingError
from tfdml.client.grpc_service import METHODS
from tfdml.client.service import Metadata, Signature, Tensor

TIMEOUT = 0.3
PATIENCE = 20.0  # where the time is not what is tested
OPTIONS = {"timeout": PATIENCE, "headers": {"Api-Key": "secret"}}
MALFORMED = "INTERNAL: the answer is not .*Received: "
RESPONSE, METADATA, STATUS = (response for *_, response in METHODS.values())
OK = b"HTTP/1.1 200 OK\r\n"
DEEP = b"[" * 100_000 + b"]" * 100_000

WRONG_EMBEDDINGS = [  # of one image, in JSON
    *(b"null", b'"abc"', b'["abc"]', b"[0.5]", b"[[[0.5]]]", b"[[0.5], [1.5]]"),
    *(b'[["0.5", "1.5"]]', b'[[0.5, "1.5"]]', b"[[0.5, null]]", b"[[true, false]]"),
    *(b"[[0.5, [1.5]]]", b'[[{"b64": 5}]]', b'[[{"b64": "?"}]]', b"[[1" + b"0" * 400 + b"]]"),
    *(b'[[0.5]], "valid": ' + valid for valid in (b"[]", b"true", b"[true, true]", b'["yes"]')),
    b'[["' + b"x" * 1_000_000 + b'"' + b',"x"' * 1000 + b"]]",
]
# Name -> how to answer, and the code of the error.
REST_ATTACKS = {
    "no_answer": (hostile.endless(b"", b"", 0.02), "DEADLINE_EXCEEDED"),
    "endless_headers": (hostile.endless(OK, b"X: 1\r\n" * 10_000), "UNAVAILABLE"),
    "empty_answer": (hostile.saying(200, b""), "UNAVAILABLE"),
    "cut_off": (lambda to: to.sendall(OK + b"Content-Length: 5\r\n\r\n{}"), "UNAVAILABLE"),
    "wrong_length": (hostile.saying(200, b"{}", "Content-Length: 5, 6"), "UNAVAILABLE"),
    "wrong_location": (hostile.saying(302, b"", "Location: http://[::"), "UNKNOWN: .*redirect"),
}
# Bodies of answers to `embed` of one image, where {"embedding": [[0.5, 1.5]]} is right.
REST_ANSWERS = [
    b"\xff\xfe",
    b"null",
    b"5",
    b"[1, 2]",
    b'{"outputs": ' + DEEP + b"}",
    b'{"outputs": ' + b"[" * 500 + b"]" * 500 + b"}",
    b'{"outputs": ' + b'{"a":' * 500 + b"1" + b"}" * 501,
    b"1" * 1_000_000,
    b'{"outputs": null}',
    b'{"outputs": ["abc"]}',
    b'{"outputs": [[0.5, 1.5]]}',  # of which output? the metadata are wrong too
    b'{"outputs": {}}',
    b'{"outputs": {' + b",".join(b'"%d": [0.5]' % i for i in range(10_000)) + b"}}",
    *(b'{"outputs": {"embedding": ' + each + b"}}" for each in WRONG_EMBEDDINGS),
]
ERRORS = [  # the status of an answer that is none, what it says, and what is made of it
    (400, b'{"error": "bad image"}', "^INVALID_ARGUMENT: bad image$"),
    (404, b'{"error": "Servable not found"}', "^NOT_FOUND: Servable not found$"),
    (503, b'{"error": "queue full"}', "^UNAVAILABLE: queue full$"),
    (503, b"", "^UNAVAILABLE: .*status 503$"),
    (502, b"<html>Bad Gateway</html>", "^UNKNOWN: .*status 502$"),
    (413, b"", "^RESOURCE_EXHAUSTED: .*status 413$"),
    *(
        (400, content, "^INVALID_ARGUMENT: .* answered with status 400$")
        for content in (
            b'{"error": 5}',
            b'{"error": " "}',
            b'{"error": ["x"]}',
            b"[]",
            DEEP,
            b"\xff",
        )
    ),
]


def tensor(shape=(1, 2), dtype=1, **content):
    return {"dtype": dtype, "tensor_shape": {"dim": [{"size": side} for side in shape]}, **content}


NUMBERS = {"float_val": [0.5, 1.5]}
WRONG_TENSORS = [  # of shape (1, 2) is right
    tensor((2**62, 2**62), float_val=[0.5]),
    tensor((1,) * 254, float_val=[0.5]),
    tensor((0, 10**12)),
    tensor((1, 2)),
    *(tensor(shape, **NUMBERS) for shape in ((-2, -1), (1, 1), (2,), (2, 1), (1, 1, 2))),
    *(tensor(shape, float_val=[0.5]) for shape in ((), (1,))),
    *(tensor((1, 2), tensor_content=bytes(size)) for size in (7, 12)),
    *(tensor((1, 2), dtype=dtype, **NUMBERS) for dtype in (0, 2, 99)),
    tensor((1, 2), dtype=10, bool_val=[True, False]),
    *(tensor((1, 2), dtype=7, string_val=texts) for texts in ([b"0.5", b"1.5"], [b"0.5"])),
]
WRONG_VALID = [  # of shape (1,) is right
    tensor((0,), dtype=10),
    tensor((2,), dtype=10, bool_val=[True, True]),
    tensor((), dtype=10, bool_val=[True]),
    tensor((1,), float_val=[1.0]),
    tensor((1,), dtype=7, string_val=[b"yes"]),
]
GRPC_ANSWERS = [
    {},
    {"other": tensor(**NUMBERS)},
    *({"embedding": wrong} for wrong in WRONG_TENSORS),
    *({"embedding": tensor(**NUMBERS), "valid": wrong} for wrong in WRONG_VALID),
]


@contextlib.contextmanager
def harmless(match, timeout=PATIENCE):
    """Asserts that a call fails with a `ServingError` within its time, and takes little memory."""
    before, began = resident(), time.monotonic()
    with pytest.raises(ServingError, match=match) as error:
        yield error
    assert time.monotonic() - began < timeout + 1
    assert peak() - before < 200
    assert error.value.code.isupper()
    assert len(str(error.value)) < 3000


def resident():
    """MB of this process; `peak` is the most since then. Both are 0 where there is no /proc."""
    if sys.platform == "linux":
        pathlib.Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak():
    return hostile.peak_kilobytes() / 1000 if sys.platform == "linux" else 0


@pytest.fixture(scope="module")
def server():
    with hostile.HostileServer() as server:
        yield server


def client_of(server, scheme="http", **options):
    return Client(f"{scheme}://127.0.0.1:{server.port}", model="m", **options)


@pytest.fixture
def client(server):
    with client_of(server, **OPTIONS) as client:
        yield client


@pytest.fixture(scope="module")
def by_grpc():
    """A client, and the `HostileMethods` of its server."""
    with (
        hostile.serving_methods() as (port, methods),
        Client(f"grpc://127.0.0.1:{port}", model="m", **OPTIONS) as client,
    ):
        yield client, methods


@pytest.mark.parametrize("attack", REST_ATTACKS)
def test_an_attack_by_rest_is_given_up(attack, server):
    server.answer, said = REST_ATTACKS[attack]
    with client_of(server, timeout=TIMEOUT) as client, harmless(said, TIMEOUT):
        client.embed(b"x")


def test_retries_end_with_the_timeout(server):
    server.received.clear()
    server.answer = hostile.saying(503, b"")
    with client_of(server, timeout=0.5, retries=20) as client, harmless("UNAVAILABLE", 0.5):
        client.status()
    assert len(server.received) in (2, 3, 4)


@pytest.mark.parametrize("status", [301, 307])
def test_no_redirect_is_followed(status, server, client):
    with hostile.HostileServer() as other:
        other.answer = hostile.saying(200, b'{"outputs": {"embedding": [[1.0]]}}')
        location = f"Location: http://127.0.0.1:{other.port}/v1/models/m:predict"
        server.answer = hostile.saying(status, b"", location)
        for call in (lambda: client.embed(b"x"), client.status, client.metadata):
            with harmless(f"UNKNOWN: .*status {status}, a redirect to 'http://127"):
                call()
        assert other.received == []


def test_malformed_answers_by_rest(server, client):
    for content in REST_ANSWERS:
        server.answer = hostile.saying(200, content)
        for call in (client.embed, lambda image: client.similarity(image, image)):
            with harmless(MALFORMED):
                call(b"x")
        for call in (client.status, client.metadata, lambda: client.embed([])):
            with harmless(MALFORMED):
                call()
    server.answer = hostile.saying(200, b'{"outputs": {"embedding": [[0.5, 1]]}}')
    assert client.embed(b"x").tolist() == [[0.5, 1.0]]
    assert b"Api-Key: secret" in server.received[-1]


def test_reasons_by_rest_even_malformed_ones(server):
    with client_of(server, timeout=PATIENCE, retries=0) as client:
        for status, content, said in ERRORS:
            server.answer = hostile.saying(status, content)
            for call in (lambda: client.embed(b"x"), client.status, client.metadata):
                with harmless(said):
                    call()


def test_malformed_answers_by_grpc(by_grpc):
    client, methods = by_grpc
    for outputs in GRPC_ANSWERS:
        methods.content = RESPONSE(outputs=outputs).SerializeToString()
        for call in (client.embed, lambda image: client.similarity(image, image)):
            with harmless(MALFORMED):
                call(b"x")
    methods.content = RESPONSE(outputs={"embedding": tensor(**NUMBERS)}).SerializeToString()
    assert client.embed(b"x").tolist() == [[0.5, 1.5]]
    assert methods.headers["api-key"] == "secret"


def test_malformed_metadata_by_grpc(by_grpc):
    client, methods = by_grpc
    for content in (
        METADATA(metadata={"signature_def": {"type_url": "a/b", "value": b"x"}}),
        METADATA(model_spec={"version": {"value": 1}}),
        STATUS(),
        STATUS(model_version_status=[{"version": -(2**40), "state": 77}]),
    ):
        methods.content = content.SerializeToString()
        for call in (client.metadata, lambda: client.embed([])):
            with harmless("INTERNAL"):
                call()
        with contextlib.suppress(ServingError):
            client.status()


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"", b""),
        (b"", b"\0"),
        (b"\0\0\0\x04\0\0\0\0\0", b"\0"),  # the settings of HTTP/2, as they should be
        (b"\0\0\0\x04\0\0\0\0\0", b"\0\0\0\x04\0\0\0\0\0"),
        (b"", b"\xff" * 100),
        (OK, b"X: 1\r\n"),
    ],
)
def test_drops_by_grpc_are_given_up(start, piece, server):
    server.answer = hostile.endless(start, piece, 0.02)
    said = "DEADLINE_EXCEEDED|UNAVAILABLE"
    with client_of(server, "grpc", timeout=TIMEOUT) as client, harmless(said, TIMEOUT):
        client.embed(b"x")


def test_embeddings_of_two_lengths_are_no_answer(monkeypatch):
    def predict(model, signature, inputs):
        return {"embedding": np.ones((1, len(inputs["image_bytes"][0])), np.float32)}

    with Client("http://127.0.0.1:1", model="m", version=1, batch_size=1) as client:
        monkeypatch.setattr(client._service, "predict", predict)
        with harmless(r"INTERNAL: .*one length.*Received: \[1, 2\]"):
            client.embed([b"x", b"xx"])


@pytest.mark.parametrize("shape", [None, (), (None,), (None, None), (None, 2, 2)])
def test_metadata_without_a_length_are_no_answer(shape, monkeypatch):
    signature = Signature({"images": Tensor("float32", None)}, {"embedding": Tensor("f", shape)})
    metadata = Metadata(1, {"serving_default": signature})
    with Client("http://127.0.0.1:1", model="m") as client:
        monkeypatch.setattr(client._service, "metadata", lambda model: metadata)
        with harmless("INTERNAL: .*returns `embedding`"):
            client.embed([])
