"""Servers of the tests: started on free ports of 127.0.0.1, and stopped."""

import contextlib
import pathlib
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import NamedTuple

STAND_IN = (sys.executable, str(pathlib.Path(__file__).with_name("protocol_server.py")))
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
def serving(command, folder, *flags, model):
    """The ports of a server that answers for a model.

    Args:
        command: `STAND_IN`, or that of `tensorflow_model_server`.
        folder: Where its words are kept, in `server.log`.
        *flags: Of the server, but for the ports.
        model: Name of a model, which is loaded when this returns.
    """
    ports, log = free_ports(), folder / "server.log"
    flags = (f"--port={ports.grpc}", f"--rest_api_port={ports.rest}", *flags)
    with log.open("w") as words:
        process = subprocess.Popen([*command, *flags], stdout=words, stderr=subprocess.STDOUT)
    try:
        address = f"http://127.0.0.1:{ports.rest}/v1/models/{model}"
        until = time.monotonic() + SECONDS
        while not answers(address):
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < until, f"not loaded in time: {log.read_text()[-2000:]}"
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
