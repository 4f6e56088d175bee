import contextlib
import json
import socket
import threading
import time

import pytest

from tfdml.search import server as module
from tfdml.search.application import PICTURES


def raw(port, text):
    """What is answered to bytes that need not be a request."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(text)
        answer = b""
        while block := connection.recv(65536):
            answer += block
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode().lower(), body


def test_rejects_by_the_announced_size_before_it_is_sent(search, serving):
    with serving(search, upload_bytes=1000) as ask:
        request = b"POST /api/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
        status, head, body = raw(ask.port, request % 10**12)
        assert status == 413
        assert "application/json" in head
        assert json.loads(body) == {"error": "The picture must be a file of at most 0.001 MB"}


def test_rejects_pieces_that_grow_too_large(search, serving):
    size = 1010
    with serving(search, upload_bytes=1000) as ask:
        head = b"POST /api/search HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        status, _, body = raw(ask.port, head + b"%x\r\n" % size + bytes(size) + b"\r\n0\r\n\r\n")
        assert (status, list(json.loads(body))) == (413, ["error"])


def test_what_is_no_request_gets_a_sentence(search, serving):
    with serving(search) as ask:
        status, head, body = raw(ask.port, b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n")
        assert (status, list(json.loads(body))) == (400, ["error"])
        assert "nosniff" in head
        assert "Server" not in ask("/")[2]


def waiting_model(model):
    """Makes the model wait; returns the event that ends it, and a counter of those waiting."""
    released, waiting, embed = threading.Event(), threading.Semaphore(0), model.embed_pictures

    def waits(contents):
        waiting.release()
        released.wait(20)
        return embed(contents)

    model.embed_pictures = waits
    return released, waiting


def test_pictures_beyond_a_few_are_told_to_come_again_and_the_status_never_waits(
    model, search, serving, encoded
):
    picture, statuses = encoded("red"), []
    with serving(search) as ask:
        released, waiting = waiting_model(model)
        threads = [
            threading.Thread(target=lambda: statuses.append(ask("/api/search", picture)[0]))
            for _ in range(PICTURES)
        ]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert waiting.acquire(timeout=10)
        status, answer, headers = ask("/api/search", picture)
        assert (status, headers["Retry-After"]) == (503, "1")
        assert answer["error"].startswith("Too many pictures at once")
        assert ask("/api/status")[0] == ask("/")[0] == 200
        released.set()
        for thread in threads:
            thread.join()
        assert statuses == [200] * PICTURES
        assert ask("/api/search", picture)[0] == 200


def test_half_requests_do_not_keep_others_out_and_are_dropped(search, serving, monkeypatch):
    monkeypatch.setattr(module, "_SECONDS", 1)
    with serving(search) as ask:
        begun = b"POST /api/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90000\r\n\r\nx"
        half = [socket.create_connection(("127.0.0.1", ask.port), timeout=10) for _ in range(150)]
        for number, connection in enumerate(half):
            connection.sendall(begun[: 20 if number % 2 else None])
        began = time.monotonic()
        assert ask("/api/status")[0] == 200
        assert time.monotonic() - began < 1
        dripping = half.pop()
        for connection in half:
            assert connection.recv(1) == b""
            connection.close()
        with pytest.raises(OSError, match=r"pipe|reset"):
            drip(dripping)
        dripping.close()


def drip(connection):
    for _ in range(100):
        connection.sendall(b"x")
        time.sleep(0.05)


def test_a_request_may_take_as_long_as_its_bytes(search, serving, encoded, monkeypatch):
    monkeypatch.setattr(module, "_SECONDS", 1)
    monkeypatch.setattr(module, "_BYTES_PER_SECOND", 100)
    picture = encoded("red", size=(400, 300))
    head = b"POST /api/search?k=1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    with serving(search) as ask, socket.create_connection(("127.0.0.1", ask.port)) as connection:
        connection.sendall(head % len(picture) + picture[:300])
        time.sleep(2.1)
        connection.sendall(picture[300:])
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_the_oldest_of_too_many_uploads_are_closed(search, serving, monkeypatch):
    monkeypatch.setattr(module, "_UPLOADS", 2)
    head = b"POST /api/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100999\r\n\r\n"
    with serving(search, upload_bytes=101_000) as ask, contextlib.ExitStack() as stack:
        connections = []
        for _ in range(4):
            connection = socket.create_connection(("127.0.0.1", ask.port), timeout=4)
            connections.append(stack.enter_context(connection))
            connection.sendall(head + bytes(90_000))
            time.sleep(0.02)
        with contextlib.suppress(ConnectionResetError):
            assert connections[0].recv(1) == b""
        connections[-1].sendall(bytes(10_999))
        assert connections[-1].recv(65536).startswith(b"HTTP/1.1 4")


def test_no_thread_waits_for_clients_that_do_not_read(search, serving, encoded, monkeypatch):
    picture = encoded("red", "BMP", size=(600, 600))
    monkeypatch.setattr(search, "content", lambda key: picture)
    asked = b"GET /api/images/0 HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100
    with serving(search) as ask, contextlib.ExitStack() as connections:
        for _ in range(PICTURES + 2):
            connection = socket.create_connection(("127.0.0.1", ask.port))
            connections.enter_context(connection).sendall(asked)
        time.sleep(0.5)
        assert ask("/api/status")[0] == 200
