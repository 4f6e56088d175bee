"""The settings of `python -m tfdml.serving.client`, one class for each command."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Connection:
    """Which model of which server to ask.

    Args:
        server: Address: grpc://host:8500 or http://host:8501; grpcs:// and https:// are encrypted.
        model: Name that the server gives the model.
        version: Number of the version to ask; the newest if not given.
        label: Label of the version to ask, such as stable or canary.
        batch_size: Most images of a request.
        in_flight: Requests under way at once.
        timeout: Seconds that a request may take.
        retries: Times that a request is repeated while the server is unavailable.
        headers: What to send along, as `--headers.authorization "Bearer ..."`.
        authority: File of the certificates that vouch for the server, if the machine has none.
        certificate: File of the client's own certificate, for a server that asks for one.
        key: File of the key of the certificate.
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
    """Which model of which server to ask, and where to write.

    Args:
        out: File to write, of NumPy: `paths`, `embeddings`, `model` and `version`.
        overwrite: Whether to replace a file that is there.
        skip_invalid: Leave images that cannot be read out, and name them, instead of failing.
    """

    out: str = "embeddings.npz"
    overwrite: bool = False
    skip_invalid: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Similarity(Connection):
    """Which model of which server to ask.

    Args:
        skip_invalid: Leave images that cannot be read out, and name them, instead of failing.
    """

    skip_invalid: bool = False
