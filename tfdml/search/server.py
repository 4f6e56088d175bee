"""The HTTP server of a search: its threads, and its limits on requests."""

import logging
import socket
from typing import Any

from waitress.server import create_server

from tfdml.search.application import PICTURES

_THREADS = PICTURES + 2  # requests at once: the page and the status never wait for pictures


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
    """The server of an application, which answers once its `run` is called."""
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # otherwise it logs every wait
    return create_server(
        application,
        sockets=[listening(host, port)],
        threads=_THREADS,
        ident=None,
        max_request_body_size=upload_bytes + 1,  # a request must have fewer
        inbuf_overflow=upload_bytes + 2,  # uploads are never written to a file
        clear_untrusted_proxy_headers=True,
        connection_limit=500,
        channel_timeout=30,  # seconds without a byte
        asyncore_use_poll=True,
    )
