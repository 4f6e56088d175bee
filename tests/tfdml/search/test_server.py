import socket
import threading

from tfdml.search.application import PICTURES


def test_rejects_what_is_too_large_before_it_is_sent_or_whole(search, serving):
    head, size = b"POST /api/search HTTP/1.1\r\nHost: localhost\r\n", 1010
    announced = b"Content-Length: %d\r\n\r\n" % 10**12
    pieces = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (size, bytes(size))
    with serving(search, upload_bytes=1000) as ask:
        for rest in (announced, pieces):
            with socket.create_connection(("127.0.0.1", ask.port), timeout=10) as connection:
                connection.sendall(head + rest)
                answer = b"".join(iter(lambda: connection.recv(65536), b""))
            assert answer.split()[1] == b"413"
        assert "Server" not in ask("/")[2]


def test_pictures_beyond_a_few_are_told_to_come_again_and_the_status_never_waits(
    model, search, serving, encoded
):
    picture, statuses, embed = encoded("red"), [], model.embed_picture
    released, waiting = threading.Event(), threading.Semaphore(0)

    def waits(content):
        waiting.release()
        released.wait(20)
        return embed(content)

    model.embed_picture = waits
    with serving(search) as ask:
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
