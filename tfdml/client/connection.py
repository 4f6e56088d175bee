"""Connects to the service at an address."""

import pathlib
import urllib.parse
from typing import NamedTuple

from tfdml.checks import check

SCHEMES = {"grpc": 8500, "grpcs": 8500, "http": 8501, "https": 443}  # and their default ports


class Tls(NamedTuple):
    """PEM files for an encrypted connection.

    Args:
        authority: CA certificates to verify the server with; the machine's own if None.
        certificate: The client's own, if the server requires one.
        key: Private key of `certificate`.
    """

    authority: pathlib.Path | None
    certificate: pathlib.Path | None
    key: pathlib.Path | None


def connect(address, *, timeout, headers, connections, authority, certificate, key):
    """Returns a `GrpcService` or a `RestService`, without sending anything.

    Args:
        address: `grpc://host:8500` or `http://host:8501`; `grpcs://` and `https://` are encrypted.
        timeout: Seconds that a request may take.
        headers: {name: text}, sent with every request.
        connections: Most concurrent requests.
        authority, certificate, key: Paths, or None: see `Tls`.

    Raises:
        FileNotFoundError: If a file of `Tls` does not exist.
        ImportError: If the address is of gRPC and grpcio or tensorflow-serving-api not installed.
        ValueError: If the address is malformed, or the files do not apply to it.
    """
    parts = urllib.parse.urlsplit(address)
    check(
        parts.scheme in SCHEMES and _host(parts),
        "`address` must be grpc://host:8500 or http://host:8501, or grpcs:// or https:// over TLS",
        address=address,
    )
    given = {"authority": authority, "certificate": certificate, "key": key}
    encrypted = parts.scheme in ("grpcs", "https")
    check(
        encrypted or not any(given.values()),
        "certificates require grpcs:// or https://",
        address=address,
    )
    check(
        bool(certificate) == bool(key),
        "`certificate` and `key` must be given together",
        certificate=certificate,
        key=key,
    )
    files = {name: file and pathlib.Path(file) for name, file in given.items()}
    for file in filter(None, files.values()):
        if not file.is_file():
            raise FileNotFoundError(f"there is no file {file}")
    settings = {"timeout": timeout, "headers": headers, "tls": Tls(**files) if encrypted else None}
    target = f"{_host(parts)}:{parts.port or SCHEMES[parts.scheme]}"
    if parts.scheme.startswith("http"):
        from tfdml.client.rest_service import RestService

        address = f"{parts.scheme}://{target}{parts.path}"
        return RestService(address, connections=connections, **settings)
    check(parts.path in ("", "/"), "a gRPC address must not have a path", address=address)
    try:
        import grpc  # noqa: F401
    except ImportError as error:
        raise ImportError('grpc:// needs grpcio: pip install "tfdml[serving]"') from error
    from tfdml.client.grpc_service import GrpcService

    return GrpcService(target, **settings)


def _host(parts):
    """The host, IPv6 in brackets; None if there is none, or the port is invalid."""
    try:
        parts.port  # noqa: B018
    except ValueError:
        return None
    return f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
