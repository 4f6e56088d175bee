"""HTTP requests that end by their deadline."""

import http.client
import io
import time
import urllib.request
from typing import Any

import urllib3.connection
import urllib3.util


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


def http_session(address, connections, **tls):
    """A `PoolManager` whose `timeout` holds for a request as a whole; uses the machine's proxy.

    The time limit of `urllib3` is one of each piece that is read.
    """
    url = urllib3.util.parse_url(address)
    proxy = urllib.request.getproxies().get(str(url.scheme))
    if proxy and not urllib.request.proxy_bypass(str(url.host)):
        session = urllib3.ProxyManager(proxy, maxsize=connections, **tls)
    else:
        session = urllib3.PoolManager(maxsize=connections, **tls)
    pool: Any = session.connection_from_url(address)
    pool.ConnectionCls = type("Timed", (_Timed, pool.ConnectionCls), {})
    return session
