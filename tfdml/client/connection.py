"""Connects to the service at an address."""

import pathlib

import urllib3.exceptions
import urllib3.util

from tfdml.checks import check
from tfdml.client.rest_service import RestService

SCHEMES = {"grpc": 8500, "grpcs": 8500, "http": 8501, "https": 443}  # and their default ports


def connect(address, files, *, connections, **settings):
    """Returns a `GrpcService` or a `RestService`, without sending anything.

    Args:
        address: As for `Client`.
        files: {name: path, or None} of `authority`, `certificate` and `key`.
        connections: Most concurrent requests.
        **settings: `timeout`, `retries` and `headers`.
    """
    try:
        url = urllib3.util.parse_url(address)
    except urllib3.exceptions.LocationParseError:
        url = urllib3.util.Url()
    scheme = url.scheme or ""
    known = "grpc://host:8500 or http://host:8501, or grpcs:// or https:// over TLS"
    check(scheme in SCHEMES and url.host, f"`address` must be {known}", address=address)
    settings["tls"] = _tls(address, files, scheme in ("grpcs", "https"))
    target = f"{url.host}:{url.port or SCHEMES[scheme]}"
    if scheme.startswith("http"):
        address = f"{scheme}://{target}{url.path or ''}"
        return RestService(address, connections=connections, **settings)
    check(url.path in (None, "/"), "a gRPC address must not have a path", address=address)
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
