"""A server on a free port of this machine, within a `with` block."""

import contextlib
import socket
import threading


class Listening:
    """Serves each connection in a thread of its own; a subclass implements `serve(connection)`.

    Attributes:
        port: The port.
        connections: Number of connections so far.
    """

    def __init__(self):
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self.serve, args=(connection,), daemon=True).start()
