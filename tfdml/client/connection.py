"""Connects to the service at an address."""

import pathlib
import urllib.parse

from tfdml.checks import check

SCHEMES = {"grpc": 8500, "grpcs": 8500, "http": 8501, "https": 443}  # and their default ports


def connect(address, files, *, connections, **settings):
    """Returns a `GrpcService` or a `RestService`, without sending anything.

    Args:
        address: `grpc://host:8500` or `http://host:8501`; `grpcs://` and `https://` are encrypted.
        files: {name: path, or None} of PEM files for an encrypted connection: `authority`, CA
            certificates to verify the server (the machine's if None), `certificate`, the client's
            own, if the server requires one, and `key`, its private key.
        connections: Most concurrent requests.
        **settings: `timeout`, the seconds that a request may take, `retries`, the most repetitions
            of it, and `headers`, {name: text}, sent with every request.

    Raises:
        FileNotFoundError: If a file does not exist.
        ImportError: If the address is of gRPC and grpcio or tensorflow-serving-api not installed.
        ValueError: If the address is malformed, or the files do not apply to it.
    """
    parts = urllib.parse.urlsplit(address)
    host = _host(parts)
    known = "grpc://host:8500 or http://host:8501, or grpcs:// or https:// over TLS"
    check(parts.scheme in SCHEMES and host, f"`address` must be {known}", address=address)
    settings["tls"] = _tls(address, files, parts.scheme in ("grpcs", "https"))
    target = f"{host}:{parts.port or SCHEMES[parts.scheme]}"
    if parts.scheme.startswith("http"):
        from tfdml.client.rest_service import RestService

        address = f"{parts.scheme}://{target}{parts.path}"
        return RestService(address, connections=connections, **settings)
    check(parts.path in ("", "/"), "a gRPC address must not have a path", address=address)
    try:
        from tfdml.client.grpc_service import GrpcService
    except ImportError as error:
        raise ImportError('grpc:// needs grpcio: pip install "tfdml[serving]"') from error
    return GrpcService(target, **settings)


def _tls(address, files, encrypted):
    """The checked files as {name: `pathlib.Path`}; None for an address without encryption."""
    usable = encrypted or not any(files.values())
    check(usable, "certificates require grpcs:// or https://", address=address)
    own = {name: files[name] for name in ("certificate", "key")}
    paired = all(own.values()) or not any(own.values())
    check(paired, "`certificate` and `key` must be given together", **own)
    paths = {name: file and pathlib.Path(file) for name, file in files.items()}
    for file in filter(None, paths.values()):
        if not file.is_file():
            raise FileNotFoundError(f"there is no file {file}")
    return paths if encrypted else None


def _host(parts):
    """The host, IPv6 in brackets; None if there is none, or the port is invalid."""
    try:
        parts.port  # noqa: B018
    except ValueError:
        return None
    return f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
