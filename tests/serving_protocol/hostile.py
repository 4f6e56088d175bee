"""A server on 127.0.0.1 that answers what a test tells it, by HTTP, gRPC or bytes alone."""

import contextlib
import pathlib
import socket
import time
from concurrent import futures

import grpc
from relay import Listening

PIECE = 2**16


class HostileServer(Listening):
    """Calls `answer` with each connection on which something, kept in `received`, came."""

    def __init__(self):
        self.answer, self.received = lambda connection: None, []
        super().__init__()

    def serve(self, connection):
        with contextlib.suppress(OSError), connection:
            self.received.append(connection.recv(PIECE))
            self.answer(connection)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(PIECE):  # else what is unread resets the connection
                pass


def saying(status, body, *headers):
    """Answers with a whole answer of HTTP."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close", *headers]
    content = "\r\n".join([*lines, "", ""]).encode() + body
    return lambda connection: connection.sendall(content)


def endless(start, piece, pause=0.0):
    """Says `start`, then pieces without an end, with pauses between them."""

    def answer(connection):
        connection.sendall(start)
        while True:
            connection.sendall(piece)
            time.sleep(pause)

    return answer


class HostileMethods(grpc.GenericRpcHandler):
    """Answers every call by gRPC with `content`, the bytes of a message, and keeps its headers."""

    content, headers = b"", None

    def service(self, handler_call_details):
        self.headers = dict(handler_call_details.invocation_metadata)
        return grpc.unary_unary_rpc_method_handler(lambda *_: self.content)


@contextlib.contextmanager
def serving_methods():
    """(port, `HostileMethods`) of a server by gRPC."""
    methods = HostileMethods()
    options = [("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0)]
    server = grpc.server(futures.ThreadPoolExecutor(2), [methods], options=options)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield port, methods
    server.stop(0)


def peak_kilobytes():
    """The largest memory of this process; `getrusage` counts that of its parent too."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
