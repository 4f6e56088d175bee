"""The workers of TF_CONFIG meet before TensorFlow connects them: all go on, or none."""

import contextlib
import json
import select
import socket
import sys
import time
from typing import Any

SECONDS = 600  # to wait for the last worker
SECONDS_REJECTED = 60  # to tell the workers that one is rejected


class Meeting:
    """Connections of all workers to the chief, at the addresses that TensorFlow takes afterwards.

    TensorFlow waits without end for a worker that was rejected, and neither Ctrl-C nor SIGTERM
    stops it then. This wait has a limit, and both stop it. A worker that is started again while
    the others wait takes its place.

    Args:
        addresses: Texts HOST:PORT of all workers, the chief's first.
        index: Of this worker among them.
    """

    def __init__(self, addresses, index):
        self._addresses, self._index = addresses, index
        self._port: Any = None  # a socket, which keeps this worker's port free for TensorFlow
        self._lines = {}  # address -> connection: of the chief to all others, of these to it
        self._over = False

    def agree(self, problem=""):
        """Waits until all workers call this.

        Args:
            problem: Sentence that stops all workers; empty if this one can go on.

        Raises:
            OSError: On all workers, if one has a problem, stopped, or does not come.
        """
        own = self._addresses[self._index]
        if self._port is None and not (self._index and problem):
            self._port = _listening(own)
        if not self._lines and len(self._addresses) > 1:
            why = f"{SECONDS // 60} minutes at most"
            if problem:
                why = f"{SECONDS_REJECTED} seconds at most, to stop them too"
            print(f"Waiting for all {len(self._addresses)} workers, {why}", file=sys.stderr)
        deadline = time.monotonic() + (SECONDS_REJECTED if problem else SECONDS)
        verdict = (self._ask if self._index else self._answer)(problem, deadline)
        if verdict:
            self.close()
            raise OSError(verdict)

    def reject(self):
        """Stops the other workers, unless the meeting is over; Ctrl-C ends the wait for them."""
        if not self._over:
            own = self._addresses[self._index]
            with contextlib.suppress(OSError, KeyboardInterrupt):
                self.agree(f"worker {own} was rejected: see what it printed")

    def close(self):
        """Ends the meeting, and frees this worker's port."""
        self._over = True
        for each in filter(None, [self._port, *self._lines.values()]):
            each.close()

    def _answer(self, problem, deadline):
        """The chief's: hears all others, and tells them the verdict, which it returns."""
        verdict = (self._heard if self._lines else self._gathered)(problem, deadline)
        self._tell(verdict)
        return verdict

    def _gathered(self, verdict, deadline):
        while missing := self._missing(verdict):
            if verdict:
                deadline = min(deadline, time.monotonic() + SECONDS_REJECTED)
                self._tell(verdict)
            self._port.settimeout(_remaining(deadline))
            try:
                line, _ = self._port.accept()
            except TimeoutError:
                return verdict or f"no answer from {', '.join(missing)} in {SECONDS} s"
            try:
                address, problem = _received(line, time.monotonic() + 5)
            except (OSError, ValueError, TypeError):
                address = None
            if address in self._addresses[1:]:
                self._keep(address, line)
                verdict = verdict or problem
            else:  # no worker of this cluster
                line.close()
        return verdict

    def _missing(self, verdict):
        if not verdict:
            for address, line in [*self._lines.items()]:
                if select.select([line], [], [], 0)[0]:  # it stopped, as it waits for the verdict
                    self._lines.pop(address).close()
        return [each for each in self._addresses[1:] if each not in self._lines]

    def _heard(self, verdict, deadline):
        for address, line in self._lines.items():
            try:
                verdict = verdict or _received(line, deadline)[1]
            except (OSError, ValueError):
                verdict = f"worker {address} stopped, or cannot be reached"
        return verdict

    def _keep(self, address, line):
        if address in self._lines:
            self._lines[address].close()
        self._lines[address] = line

    def _tell(self, verdict):
        for line in self._lines.values():
            with contextlib.suppress(OSError):
                _send(line, verdict)

    def _ask(self, problem, deadline):
        """That of another worker: the verdict of the chief."""
        chief, have_met = self._addresses[0], bool(self._lines)
        while True:
            try:
                if not have_met:
                    host, _, port = chief.rpartition(":")
                    seconds = min(5, _remaining(deadline))
                    line = socket.create_connection((host.strip("[]"), int(port)), seconds)
                    self._keep(chief, line)
                with contextlib.suppress(OSError):  # a chief that stops may have answered
                    _send(self._lines[chief], [self._addresses[self._index], problem])
                # The chief waits as long for the last worker, and names it.
                return _received(self._lines[chief], time.monotonic() + SECONDS + 60)
            except (OSError, ValueError) as error:
                if have_met:
                    return f"worker {chief}, the chief, stopped, or cannot be reached ({error})"
                if time.monotonic() > deadline:
                    return f"no answer from {chief}, the chief, in {SECONDS} s ({error})"
            time.sleep(0.2)


def _listening(address):
    port = int(address.rpartition(":")[2])
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        return socket.create_server(("", port), family=family, dualstack_ipv6=both)
    except OSError as error:
        raise OSError(f"this worker cannot listen at {address}: {error.strerror}") from error


def _remaining(deadline):
    return max(0.001, deadline - time.monotonic())


def _send(line, message):
    line.sendall(json.dumps(message).encode() + b"\n")


def _received(line, deadline):
    line.settimeout(_remaining(deadline))
    with line.makefile("rb") as file:
        return json.loads(file.readline(65536))
