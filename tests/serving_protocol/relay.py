"""Servers of sockets, within a `with` block, and a relay that drops or delays answers."""

import contextlib
import socket
import ssl
import threading
from time import sleep


class Listening:
    """Serves each connection by `serve(connection)` of a subclass, in a thread of its own."""

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


class Relay(Listening):
    """Passes bytes on, both ways, and cuts off the next `drops` answers; speaks TLS if it may.

    `delay` is the time in seconds from a connection to its first byte.
    """

    def __init__(self, port, certificate=None, authority=None):
        self.drops, self.delay = 0, 0.0
        self._server, self._tls = port, None
        if certificate:
            self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority)
            self._tls.load_cert_chain(*certificate)
            self._tls.set_alpn_protocols(["h2", "http/1.1"])
            self._tls.verify_mode = ssl.CERT_REQUIRED if authority else ssl.CERT_NONE
        super().__init__()

    def serve(self, client):
        sleep(self.delay)
        with contextlib.suppress(OSError):
            if self._tls:
                client = self._tls.wrap_socket(client, server_side=True)
            server = socket.create_connection(("127.0.0.1", self._server))
            threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()
            self._pass_back(server, client)

    def _pass_on(self, client, server):
        with contextlib.suppress(OSError), client, server:
            while content := client.recv(65536):
                server.sendall(content)

    def _pass_back(self, server, client):
        with contextlib.suppress(OSError), client, server:
            asked = False
            while content := server.recv(65536):
                # The first words of HTTP/2 are its settings, no answer yet.
                asked = asked or not self._is_settings(content)
                if asked and self.drops > 0:
                    self.drops -= 1
                    client.sendall(content[: len(content) // 2])
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(content)

    @staticmethod
    def _is_settings(content):
        return not content.startswith(b"HTTP/") and len(content) < 100 and content[3:4] == b"\x04"
