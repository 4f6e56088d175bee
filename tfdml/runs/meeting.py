"""The workers of TF_CONFIG, which meet before TensorFlow connects them: all go on, or none."""

import contextlib
import json
import os
import re
import select
import socket
import subprocess
import sys
import time

from tfdml.checks import check

SECONDS = 600  # to wait for the last worker
SECONDS_REJECTED = 60  # to tell the workers that one is rejected
_WATCH = """
import os, select, sys
process, seconds, sentence = sys.argv[1:]
if not select.select([0], [], [], float(seconds))[0]:
    print(sentence, file=sys.stderr)
    os.kill(int(process), 9)
"""
_WORKERS = ("chief", "worker")
_FORM = (
    'TF_CONFIG must be JSON such as {"cluster": {"worker": ["host:port", "host:port"]}, '
    '"task": {"type": "worker", "index": 0}}'
)


def read_config(text):
    """The addresses of all workers, the chief's first, and the index of this one, of TF_CONFIG."""
    try:
        config = json.loads(text)
        jobs, task = dict(config["cluster"].items()), config["task"]
        kind, index = str(task["type"]), int(str(task["index"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"{_FORM}. Received: {text!r} ({reason})") from None
    lists = all(isinstance(addresses, list) for addresses in jobs.values())
    check(lists, "the jobs of TF_CONFIG must be lists of addresses", cluster=jobs)
    valid = jobs and set(jobs) <= set(_WORKERS) and len(jobs.get("chief", [])) <= 1
    check(valid, "TF_CONFIG must have workers, and at most one chief, alone", cluster=jobs)
    here = kind in jobs and 0 <= index < len(jobs[kind])
    check(here, "the task of TF_CONFIG must be one of its cluster", task=task, cluster=jobs)
    addresses = [address for job in _WORKERS for address in jobs.get(job, [])]
    found = [re.fullmatch(r".+:(\d{1,5})", str(address)) for address in addresses]
    valid = all(each and 0 < int(each[1]) < 2**16 for each in found)
    expectation = "the addresses of TF_CONFIG must be different texts HOST:PORT"
    check(valid and len(set(addresses)) == len(addresses), expectation, cluster=jobs)
    return tuple(addresses), index + (len(jobs.get("chief", [])) if kind == "worker" else 0)


def meet(addresses, index, problem=""):
    """Waits until all workers call this, at the addresses that TensorFlow takes afterwards.

    TensorFlow waits without end for a worker that was rejected, and neither Ctrl-C nor SIGTERM
    stops it then. This wait has a limit, and both stop it. A worker that is started again while
    the others wait takes its place.

    Args:
        addresses: Texts HOST:PORT of all workers, the chief's first.
        index: Of this worker among them.
        problem: Sentence that stops all workers; empty if this one can go on.

    Raises:
        OSError: On all workers, if one has a problem, or does not come.
    """
    own, wait = addresses[index], f"{SECONDS // 60} minutes at most"
    if problem:
        wait = f"{SECONDS_REJECTED} seconds at most, to stop them too"
    if len(addresses) > 1:
        print(f"Waiting for all {len(addresses)} workers, {wait}", file=sys.stderr)
    deadline = time.monotonic() + (SECONDS_REJECTED if problem else SECONDS)
    # A worker that has a problem tells it, whatever its own port.
    with contextlib.nullcontext() if index and problem else _listening(own) as port:
        if index:
            verdict = _ask(addresses[0], [own, problem], deadline)
        else:
            verdict = _gather(port, addresses[1:], problem, deadline)
    if verdict:
        raise OSError(verdict)


def reject(addresses, index):
    """Stops the other workers; Ctrl-C ends the wait for them."""
    with contextlib.suppress(OSError, KeyboardInterrupt):
        meet(addresses, index, f"worker {addresses[index]} was rejected: see what it printed")


def _gather(port, others, verdict, deadline):
    """The chief's part: hears all others, and tells them the verdict, which it returns."""
    lines = {}
    with contextlib.ExitStack() as opened:
        while missing := [address for address in others if address not in lines]:
            if verdict:
                deadline = min(deadline, time.monotonic() + SECONDS_REJECTED)
            port.settimeout(_remaining(deadline))
            try:
                line = opened.enter_context(port.accept()[0])
            except TimeoutError:
                verdict = verdict or f"no answer from {', '.join(missing)} in {SECONDS} s"
                break
            with contextlib.suppress(OSError, ValueError, TypeError):  # of no worker
                address, problem = _received(line, time.monotonic() + 5)
                if address in others:
                    lines[address], verdict = line, verdict or problem
            for address, line in [*lines.items()]:
                if verdict:
                    _send(line, verdict)
                elif select.select([line], [], [], 0)[0]:  # it stopped, as it waits for the verdict
                    del lines[address]
        for line in lines.values():
            _send(line, verdict)
    return verdict


def _ask(chief, message, deadline):
    """Another worker's part: the verdict of the chief."""
    host, _, port = chief.rpartition(":")
    while True:
        try:
            seconds = min(5, _remaining(deadline))
            with socket.create_connection((host.strip("[]"), int(port)), seconds) as line:
                _send(line, message)
                # The chief waits as long for the last worker, and names it.
                return _received(line, time.monotonic() + SECONDS + 60)
        except (OSError, ValueError) as error:
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
    with contextlib.suppress(OSError):  # of one that stopped
        line.sendall(json.dumps(message).encode() + b"\n")


def _received(line, deadline):
    line.settimeout(_remaining(deadline))
    with line.makefile("rb") as file:
        return json.loads(file.readline(65536))


@contextlib.contextmanager
def at_most(seconds, sentence, errors=None):
    """Kills this process, and prints a sentence to `errors`, if the block takes longer.

    A process of its own counts the time: C++ code may hold the lock of the interpreter, so that
    none of its threads and signal handlers run.
    """
    command = [sys.executable, "-c", _WATCH, str(os.getpid()), str(seconds), sentence]
    pipes = {"stdin": subprocess.PIPE, "stderr": errors}  # the end of the input ends the watch
    with subprocess.Popen(command, start_new_session=True, **pipes):
        yield
