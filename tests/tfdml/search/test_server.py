import socket
import threading

from tfdml.search.application import PICTURES


def raw(port, text):
    """The status that is answered to bytes that need not be a request."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(text)
        answer = b""
        while block := connection.recv(65536):
            answer += block
    return int(answer.split()[1])


def test_rejects_by_the_announced_size_before_it_is_sent(search, serving):
    with serving(search, upload_bytes=1000) as ask:
        request = b"POST /api/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
        status = raw(ask.port, request % 10**12)
        assert status == 413
        assert "Server" not in ask("/")[2]


def test_rejects_pieces_that_grow_too_large(search, serving):
    size = 1010
    with serving(search, upload_bytes=1000) as ask:
        head = b"POST /api/search HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        status = raw(ask.port, head + b"%x\r\n" % size + bytes(size) + b"\r\n0\r\n\r\n")
        assert status == 413


def waiting_model(model):
    """Makes the model wait; returns the event that ends it, and a counter of those waiting."""
    released, waiting, embed = threading.Event(), threading.Semaphore(0), model.embed_picture

    def waits(content):
        waiting.release()
        released.wait(20)
        return embed(content)

    model.embed_picture = waits
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
