"""HTTP requests that end by their deadline, without redirects and cookies."""

import http.client
import io
import time

import requests
import requests.adapters
import urllib3.connection


class _File(io.RawIOBase):
    """The file of a socket, which must be read within the socket's timeout, not only each piece."""

    def __init__(self, file, sock):
        self._file, self._socket = file, sock
        self._until = time.monotonic() + sock.gettimeout()

    def readable(self):
        return True

    def readinto(self, buffer):
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._socket.settimeout(left)
        return self._file.readinto(buffer)

    def close(self):
        self._file.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock, *args, **kwargs):
        super().__init__(sock, *args, **kwargs)
        self.fp = io.BufferedReader(_File(self.fp.detach(), sock))

    def begin(self):
        super().begin()
        for name in ("Set-Cookie", "Set-Cookie2"):  # long ones take seconds to read
            del self.headers[name]


class _Timed(urllib3.connection.HTTPConnection):
    """A connection whose `timeout` counts down from when it is set."""

    response_class = _Response
    _until = None

    @property
    def timeout(self):  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._until and max(0.001, self._until - time.monotonic())

    @timeout.setter
    def timeout(self, seconds):
        self._until = seconds and time.monotonic() + seconds

    def _new_conn(self):
        sock = super()._new_conn()
        sock.settimeout(self.timeout)  # of the TLS handshake, which is next
        return sock

    def send(self, data):
        if self.sock:
            self.sock.settimeout(self.timeout)
        super().send(data)


class _Adapter(requests.adapters.HTTPAdapter):
    def get_connection_with_tls_context(self, *args, **kwargs):
        pool = super().get_connection_with_tls_context(*args, **kwargs)
        if not issubclass(pool.ConnectionCls, _Timed):
            kind = type("Timed", (_Timed, pool.ConnectionCls), {})  # of HTTP, TLS or a proxy
            pool.ConnectionCls = kind  # pyright: ignore[reportAttributeAccessIssue]
        return pool


class Session(requests.Session):
    """A session whose `timeout` holds for a request as a whole, and that follows no redirects.

    The time limit of `requests` is one of each connection attempt and of each piece that is read.
    """

    def __init__(self, connections):
        super().__init__()
        for scheme in ("http://", "https://"):
            self.mount(scheme, _Adapter(pool_maxsize=connections))

    def get_redirect_target(self, resp):
        return None
