"""Queries a model on TF Serving.

    python -m tfdml.client status --model embedder
    python -m tfdml.client embed *.jpg --model embedder --out embeddings.npz
    python -m tfdml.client embed photos --server http://host:8501 --label canary
    python -m tfdml.client classify photos --model embedder

status    prints the versions of the model and their state; fails if none is available
embed     writes the embeddings of image files and folders to a file
classify  prints the class of each image and its probability, or that it is none of these

Each has --help.
"""

import dataclasses
import os
import pathlib
import typing

import tfdml.client
from tfdml.checks import check
from tfdml.command_line import Parser, command_of, one_sentence
from tfdml.files import check_file, replacing
from tfdml.images.image_files import SUFFIXES, is_hidden, is_image
from tfdml.quiet import keep_printing

PROGRAM = "tfdml.client"


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
        timeout: Seconds that a request may take, with its repetitions.
        retries: Most repetitions of a request while the server is unavailable.
        headers: Headers to send, such as `--headers.authorization "Bearer ..."`.
        authority: File of CA certificates to verify the server with; default: the machine's own.
        certificate: File of the client's own certificate, if the server requires one.
        key: File of the private key of the certificate.
    """

    paths: typing.ClassVar[tuple] = ("authority", "certificate", "key")

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
class Classify(Connection):
    """Server and model to use.

    Args:
        skip_invalid: Leave out and name unreadable images, instead of failing.
    """

    skip_invalid: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Embed(Classify):
    """Server and model to use, and the output file.

    Args:
        out: NumPy archive to write, with `paths`, `embeddings`, `model` and `version`.
        overwrite: Whether to replace an existing file.
    """

    paths: typing.ClassVar[tuple] = (*Connection.paths, "out")

    out: str = "embeddings.npz"
    overwrite: bool = False


def main(arguments=None):
    keep_printing()
    command, arguments = command_of(PROGRAM, __doc__, COMMANDS, arguments)
    run, settings = COMMANDS[command]
    parser = Parser(settings, prog=f"{PROGRAM} {command}", description=run.__doc__)
    if command != "status":
        explained = "image files, or folders of them"
        parser.add_argument("images", nargs="+", type=os.path.expanduser, help=explained)
    given = parser.parse_args(arguments)
    # Failed requests raise ServingError, a RuntimeError; images raise a ValueError.
    with one_sentence(PROGRAM, RuntimeError, ValueError, TypeError, OSError, ImportError):
        run(parser.settings_of(given), getattr(given, "images", []))


def embed(settings, given):
    """Writes the embeddings of images to a file."""
    import numpy as np  # for which --help does not wait

    paths, out = image_files(given), pathlib.Path(settings.out)
    check_file(out=out)
    if out.exists() and not settings.overwrite:
        raise FileExistsError(f"{out} exists: choose another --out, or give --overwrite")
    with client_of(settings) as client:
        version = client.metadata().version
    with client_of(settings, version=version, label=None) as client:
        embeddings = client.embed(paths, on_bad_image=if_bad(settings))
    good = ~np.isnan(embeddings[:, 0])
    check(good.any(), "at least one image must be readable", images=len(paths))
    paths, embeddings = np.array(paths)[good], embeddings[good]
    out.parent.mkdir(parents=True, exist_ok=True)
    about = {"model": settings.model, "version": version}
    with replacing(out) as unfinished, unfinished.open("wb") as file:
        np.savez(file, paths=paths, embeddings=embeddings, **about)
    written = f"{len(paths):,} embeddings of {embeddings.shape[1]} numbers"
    print(f"{written}, by version {version} of {settings.model}: {out}")


def classify(settings, given):
    """Prints the class of each image: its distance, or its probability where that is known."""
    paths = image_files(given)
    with client_of(settings) as client:
        found = client.classify(paths, on_bad_image=if_bad(settings))
    for path, row in zip(paths, found, strict=True):
        if row is None:
            continue
        number, name = row["distances"][0], row["classes"][0]
        if "known" in row:
            number = row["probability"]
            name = row["class"] if row["known"] else f"none of these (nearest: {row['class']})"
        print(f"{number:8.4f}  {path}  {name}")


def status(settings, _):
    """Prints the versions of a model and their state."""
    with client_of(settings) as client:
        versions = client.status()
    for each in versions:
        print(" ".join(filter(None, (f"version {each.version}", each.state, each.error))))
    if not any(each.state == "AVAILABLE" for each in versions):
        raise ValueError(f"no version of {settings.model} answers at {settings.server}")


def if_bad(settings):
    return "nan" if settings.skip_invalid else "error"


def client_of(settings, **changed):
    """The `Client` of the settings of a connection."""
    names = [field.name for field in dataclasses.fields(Connection) if field.name != "server"]
    options = {name: getattr(settings, name) for name in names} | changed
    return tfdml.client.Client(settings.server, **options)


def image_files(given):
    """Paths of files, and of the images in folders, sorted within each folder; no hidden ones."""
    files = []
    for path in map(pathlib.Path, given):
        if not path.exists():
            raise FileNotFoundError(f"there is no {path}")
        found = [path]
        if path.is_dir():
            found = sorted(file for file in path.rglob("*") if is_image(file) and file.is_file())
            found = [file for file in found if not is_hidden(file.relative_to(path))]
            check(bool(found), f"{path} must hold images ({', '.join(SUFFIXES)})", images=0)
        files += map(str, found)
    return files


COMMANDS = {
    "embed": (embed, Embed),
    "classify": (classify, Classify),
    "status": (status, Connection),
}


if __name__ == "__main__":
    main()
