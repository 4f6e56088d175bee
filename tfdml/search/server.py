"""The HTTP server of a search: its threads, and its limits on requests."""

import json
import logging
import socket
import time
from typing import Any

from waitress.channel import HTTPChannel
from waitress.server import create_server
from waitress.task import ErrorTask

from tfdml.search.application import PICTURES, too_large_sentence

_THREADS = PICTURES + 2  # requests at once: the page and the status never wait for pictures
_CONNECTIONS = 500
_SECONDS = 10  # for a request to arrive, and as long as its bytes take at the speed below
_BYTES_PER_SECOND = 100_000
_UPLOADS = 20  # of the largest size, that may be held in memory while they arrive


def listening(host, port):
    """A socket that listens at an address; an OSError says why it cannot."""
    asked = {"type": socket.SOCK_STREAM, "flags": socket.AI_PASSIVE}
    try:
        family, *_, place = socket.getaddrinfo(host, port, **asked)[0]
        return socket.create_server(place[:2], family=family)
    except OSError as error:
        failed = f"cannot listen at {host}:{port} ({error.strerror or error})"
        raise OSError(f"{failed}: give another --host or --port") from error


def serve(application, *, host, port, upload_bytes) -> Any:
    """The server of waitress for an application; it listens, and answers once its `run` is called.

    Uploads that are larger than `upload_bytes` are rejected before they are received. A connection
    is closed if a request does not arrive in 10 seconds and at 100 kB/s after them, or if it asks
    for more while 16 MiB of answers are not read. The oldest are closed while more bytes arrive
    than 20 of the largest uploads have.
    """
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # otherwise it logs every wait
    server: Any = create_server(
        application,
        sockets=[listening(host, port)],
        threads=_THREADS,
        ident=None,
        max_request_body_size=upload_bytes + 1,  # a request must have fewer
        inbuf_overflow=upload_bytes + 2,  # uploads are never written to a file
        clear_untrusted_proxy_headers=True,
        connection_limit=_CONNECTIONS,
        cleanup_interval=1,
        channel_timeout=3 * _SECONDS,  # of a client that does not read its answer
        asyncore_use_poll=True,
    )
    errors = type("Errors", (_JsonError,), {"too_large": too_large_sentence(upload_bytes)})
    server.channel_class = type("Channel", (_Channel,), {"error_task_class": errors})
    maintenance = server.maintenance

    def close_slow(now):
        maintenance(now)
        arriving = 0
        for channel in sorted(server.active_channels.values(), key=lambda each: -each.since):
            arriving += channel.arrived
            crowded = arriving > _UPLOADS * upload_bytes and not channel.requests
            channel.will_close |= crowded or channel.is_slow(now)

    server.maintenance = close_slow
    return server


class _Channel(HTTPChannel):
    """A connection that knows since when it waits for a request, and how much of it arrived."""

    def __init__(self, *arguments, **options):
        self._restart()
        super().__init__(*arguments, **options)

    def received(self, data):
        self.arrived += len(data)
        return super().received(data)

    def service(self):
        super().service()
        self._restart()

    def _flush_outbufs_below_high_watermark(self):
        """Closes a connection that asks for more than it reads; else a thread would wait for it."""
        if self.total_outbufs_len > self.adj.outbuf_high_watermark:
            self.connected, self.will_close = False, True
            self.server.pull_trigger()

    def is_slow(self, now):
        """Whether a request has not arrived in time; false while one is answered."""
        answered = not (self.requests or self.total_outbufs_len)
        return answered and now > self.since + _SECONDS + self.arrived / _BYTES_PER_SECOND

    def _restart(self):
        self.since, self.arrived = time.time(), 0


class _JsonError(ErrorTask):
    """Answers malformed or too large requests in the format of the application's errors."""

    too_large = ""
    request: Any
    response_headers: Any

    def execute(self):
        error = self.request.error
        sentence = self.too_large if error.code == 413 else f"{error.reason}: {error.body}"
        body = json.dumps({"error": sentence}).encode()
        self.status = f"{error.code} {error.reason}"
        headers = {"Content-Type": "application/json", "X-Content-Type-Options": "nosniff"}
        self.response_headers.extend(headers.items())
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(body)
