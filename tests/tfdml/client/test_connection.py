import pytest

from tfdml.client import connection
from tfdml.client.grpc_service import GrpcService
from tfdml.client.rest_service import RestService

OPTIONS = {"timeout": 1.0, "headers": {}, "connections": 1}
FILES = {"authority": None, "certificate": None, "key": None}


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("grpc://host", GrpcService),
        ("grpc://host:8500", GrpcService),
        ("grpc://[::1]:8500/", GrpcService),
        ("grpcs://host", GrpcService),
        ("http://host", RestService),
        ("https://host:1/behind/a/path", RestService),
    ],
)
def test_the_scheme_names_the_protocol(address, kind):
    service = connection.connect(address, FILES, **OPTIONS)
    assert type(service) is kind
    service.close()


@pytest.mark.parametrize(
    ("address", "where"),
    [
        ("http://host", "http://host:8501"),
        ("https://host", "https://host:443"),
        ("http://[::1]:9/x/", "http://[::1]:9/x"),
    ],
)
def test_addresses_of_rest_are_completed(address, where):
    service = connection.connect(address, FILES, **OPTIONS)
    assert service._address == where
    service.close()


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"address": "127.0.0.1:8500"}, ValueError, "must be grpc://host:8500"),
        ({"address": "ftp://host"}, ValueError, "Received: address='ftp://host'"),
        ({"address": "grpc://"}, ValueError, "must be grpc://host:8500"),
        ({"address": "grpc://host:x"}, ValueError, "must be grpc://host:8500"),
        ({"address": "grpc://host/path"}, ValueError, "a gRPC address must not have a path"),
        ({"address": "http://host", "authority": "x"}, ValueError, "require grpcs:// or https://"),
        ({"address": "grpcs://host", "authority": "x.pem"}, FileNotFoundError, "no file x.pem"),
        (
            {"address": "https://host", "key": "x.pem"},
            ValueError,
            "must be given together",
        ),
    ],
)
def test_addresses_and_files_that_cannot_be(options, error, said):
    with pytest.raises(error, match=said):
        connection.connect(options.pop("address"), {**FILES, **options}, **OPTIONS)
