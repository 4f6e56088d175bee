"""The HTTP server of a search: its threads, and its limits on requests."""

import json
import logging
import socket
from typing import Any

from waitress.channel import HTTPChannel
from waitress.server import create_server
from waitress.task import ErrorTask

from tfdml.search.application import FORM_BYTES, too_large_sentence

_THREADS = 8  # requests at once


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
    """Returns a listening server, which answers once its `run` is called.

    Args:
        application: As returned by `create_application`.
        host: Address to listen at.
        port: Port; 0 for any free one.
        upload_bytes: As for the application. Larger uploads are rejected before they are received.

    Returns:
        The server of waitress, with `effective_port`, `run` and `close`.

    Raises:
        OSError: If it cannot listen there.
    """
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # otherwise it logs every wait
    most = upload_bytes + FORM_BYTES
    server: Any = create_server(
        application,
        sockets=[listening(host, port)],
        threads=_THREADS,
        ident=None,
        max_request_body_size=most,
        inbuf_overflow=most + 1,  # uploads are never written to a file
        clear_untrusted_proxy_headers=True,
    )
    errors = type("Errors", (_JsonError,), {"too_large": too_large_sentence(upload_bytes)})
    server.channel_class = type("Channel", (HTTPChannel,), {"error_task_class": errors})
    return server


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
