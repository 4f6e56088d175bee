"""The settings of `python -m tfdml.client`, one class for each command."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Connection:
    """Server and model to use.

    Args:
        server: Address: grpc://host:8500 or http://host:8501; grpcs:// and https:// are encrypted.
        model: Name of the model on the server.
        version: Number of the version to use; the newest if not given.
        label: Label of the version to use, such as stable or canary.
        batch_size: Most images of a request.
        in_flight: Most concurrent requests.
        timeout: Seconds that a request may take.
        retries: Most repetitions of a request while the server is unavailable.
        headers: Headers to send, such as `--headers.authorization "Bearer ..."`.
        authority: File of CA certificates to verify the server with; default: the machine's own.
        certificate: File of the client's own certificate, if the server requires one.
        key: File of the private key of the certificate.
    """

    server: str = "grpc://localhost:8500"
    model: str = "default"
    version: int | None = None
    label: str | None = None
    batch_size: int = 32
    in_flight: int = 2
    timeout: float = 30.0
    retries: int = 4
    headers: dict[str, str] | None = None
    authority: str | None = None
    certificate: str | None = None
    key: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Embed(Connection):
    """Server and model to use, and the output file.

    Args:
        out: NumPy archive to write, with `paths`, `embeddings`, `model` and `version`.
        overwrite: Whether to replace an existing file.
        skip_invalid: Leave out and name unreadable images, instead of failing.
    """

    out: str = "embeddings.npz"
    overwrite: bool = False
    skip_invalid: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Similarity(Connection):
    """Server and model to use.

    Args:
        skip_invalid: Leave out and name unreadable images, instead of failing.
    """

    skip_invalid: bool = False
