import json
import socket
import threading

import pytest

from tfdml.search.application import FORM_BYTES
from tfdml.search.server import serve


def raw(port, text):
    """What is answered to bytes that need not be a request."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(text)
        answer = b""
        while block := connection.recv(65536):
            answer += block
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode().lower(), body


def test_answers_over_a_socket(search, serving, encoded):
    with serving(search) as ask:
        status, answer, headers = ask("/api/search?k=1", encoded((250, 0, 0)))
        assert (status, answer["results"][0]["name"]) == (200, "red/bright.png")
        assert "Server" not in headers


def test_rejects_by_the_announced_size_before_it_is_sent(search, serving):
    with serving(search, upload_bytes=1000) as ask:
        request = b"POST /api/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
        status, head, body = raw(ask.port, request % 10**12)
        assert status == 413
        assert "application/json" in head
        assert json.loads(body) == {"error": "The picture must be a file of at most 0.001 MB"}


def test_rejects_pieces_that_grow_too_large(search, serving):
    size = 1000 + FORM_BYTES + 10
    with serving(search, upload_bytes=1000) as ask:
        head = b"POST /api/search HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        status, _, body = raw(ask.port, head + b"%x\r\n" % size + bytes(size) + b"\r\n0\r\n\r\n")
        assert (status, list(json.loads(body))) == (413, ["error"])


def test_what_is_no_request_gets_a_sentence(search, serving):
    with serving(search) as ask:
        status, head, body = raw(ask.port, b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n")
        assert (status, list(json.loads(body))) == (400, ["error"])
        assert "nosniff" in head


def test_answers_several_at_once(model, search, serving, encoded):
    together, embed = threading.Barrier(4), model.embed

    def waits_for_the_others(contents):
        together.wait(10)
        return embed(contents)

    model.embed = waits_for_the_others
    statuses = []
    with serving(search) as ask:
        threads = [
            threading.Thread(target=lambda: statuses.append(ask("/api/search", encoded("red"))[0]))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert statuses == [200] * 4


def test_a_port_that_is_taken_is_an_error(search, serving):
    with serving(search) as ask, pytest.raises(OSError, match="in use"):
        serve(None, host="127.0.0.1", port=ask.port, upload_bytes=1)
