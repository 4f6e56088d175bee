"""The ports of a server, and `tensorflow_model_server` on free ones of 127.0.0.1."""

import contextlib
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from typing import NamedTuple

REAL = shutil.which("tensorflow_model_server")
SECONDS = 120  # that a server may take to load its models, on a machine with other work


class Ports(NamedTuple):
    grpc: int
    rest: int


def free_ports():
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in Ports._fields]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return Ports(*(each.getsockname()[1] for each in sockets))


@contextlib.contextmanager
def serving(config, folder, model):
    """The ports of a server of a configuration, once it answers for a model."""
    ports, file = free_ports(), folder / "models.config"
    file.write_text(config)
    flags = (
        f"--port={ports.grpc}",
        f"--rest_api_port={ports.rest}",
        f"--model_config_file={file}",
        "--allow_version_labels_for_unavailable_models=true",
    )
    process = subprocess.Popen([REAL, *flags])
    try:
        address = f"http://127.0.0.1:{ports.rest}/v1/models/{model}"
        until = time.monotonic() + SECONDS
        while not answers(address):
            assert process.poll() is None
            assert time.monotonic() < until, "not loaded in time"
            time.sleep(0.1)
        yield ports
    finally:
        process.terminate()
        process.wait(10)


def answers(address):
    try:
        with urllib.request.urlopen(address, timeout=5) as response:
            return b"AVAILABLE" in response.read()
    except (urllib.error.URLError, OSError):
        return False
