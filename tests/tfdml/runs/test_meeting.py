"""The meeting of the workers, each in a thread of this process; what ends a wait without end."""

import concurrent.futures
import functools
import json
import socket
import subprocess
import sys
import time

import pytest

from benchmarks.workers import free_addresses
from tfdml.runs import meeting
from tfdml.runs.meeting import at_most, meet, read_config, reject


@pytest.fixture(autouse=True)
def _shorter(monkeypatch):
    monkeypatch.setattr(meeting, "SECONDS", 30)


@pytest.fixture
def addresses():
    return free_addresses(3)


def errors_of(addresses, calls):
    """What the calls {index: function}, made at once, raise; an empty text for one that returns."""

    def caught(index):
        try:
            return calls[index](addresses, index) or ""
        except OSError as error:
            return str(error)

    with concurrent.futures.ThreadPoolExecutor() as threads:
        return list(threads.map(caught, calls))


def test_all_go_on_again_and_again_and_leave_their_ports(addresses):
    for _ in range(2):
        assert errors_of(addresses, dict.fromkeys(range(3), meet)) == ["", "", ""]
    for address in addresses:
        host, port = address.split(":")
        socket.create_server((host, int(port))).close()


@pytest.mark.parametrize("rejected", [0, 1])
def test_a_rejected_worker_ends_the_others(rejected, addresses):
    errors = errors_of(addresses, {**dict.fromkeys(range(3), meet), rejected: reject})
    assert not errors.pop(rejected)
    assert errors == [f"worker {addresses[rejected]} was rejected: see what it printed"] * 2


@pytest.mark.parametrize("late", [0, 2])
def test_names_the_worker_that_does_not_come(late, addresses, monkeypatch):
    monkeypatch.setattr(meeting, "SECONDS", 0.5)
    for error in errors_of(addresses, dict.fromkeys({0, 1, 2} - {late}, meet)):
        assert f"no answer from {addresses[late]}" in error
        assert "in 0.5 s" in error


def test_does_not_wait_long_to_tell_of_a_rejection(addresses, monkeypatch):
    monkeypatch.setattr(meeting, "SECONDS_REJECTED", 0.2)
    began = time.monotonic()
    reject(addresses, 0)
    reject(addresses, 1)
    assert time.monotonic() - began < 5


def connected(address):
    """A connection, once something listens."""
    host, port = address.split(":")
    while True:
        try:
            return socket.create_connection((host, int(port)))
        except OSError:
            time.sleep(0.01)


def test_a_worker_that_starts_again_takes_its_place(addresses):
    with concurrent.futures.ThreadPoolExecutor() as threads:
        begin = functools.partial(threads.submit, meet, addresses)
        chief = begin(0)
        with connected(addresses[0]) as stopped:
            stopped.sendall(f'["{addresses[1]}", ""]\n'.encode())
        other = begin(2)
        assert not concurrent.futures.wait([chief, other], timeout=0.3).done
        for each in (begin(1), other, chief):
            each.result()


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\n", b'["other:1", "stop"]\n', b"1\n", b""])
def test_programs_that_are_no_workers_are_not_heard(sent, addresses):
    with concurrent.futures.ThreadPoolExecutor() as threads:
        chief = threads.submit(meet, addresses, 0)
        with connected(addresses[0]) as stranger:
            stranger.sendall(sent)
        for each in (chief, *(threads.submit(meet, addresses, index) for index in (1, 2))):
            each.result()


def test_says_that_its_port_is_taken(addresses):
    host, port = addresses[1].split(":")
    with (
        socket.create_server((host, int(port))),
        pytest.raises(OSError, match=f"cannot listen at {addresses[1]}: Address already in use"),
    ):
        meet(addresses, 1)


def test_a_single_worker_meets_nobody(capsys):
    meet(free_addresses(1), 0)
    assert not capsys.readouterr().err


def config_of(jobs, task):
    return json.dumps({"cluster": jobs, "task": task})


TWO, FIRST = {"worker": ["a:1", "b:2"]}, {"type": "worker", "index": 0}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("{", "TF_CONFIG must be JSON such as"),
        ("[]", "TF_CONFIG must be JSON such as"),
        (json.dumps({"cluster": TWO}), "KeyError: 'task'"),
        (config_of(TWO, {**FIRST, "index": 0.5}), "TF_CONFIG must be JSON such as"),
        (config_of(TWO, {**FIRST, "index": 2}), "the task of TF_CONFIG must be one of its cluster"),
        (config_of(TWO, {**FIRST, "type": ["worker"]}), "must be one of its cluster"),
        (
            config_of({"ps": ["a:1"]}, {"type": "ps", "index": 0}),
            "TF_CONFIG must have workers, and",
        ),
        (config_of({"worker": "a:1"}, FIRST), "must be lists of addresses"),
        *(
            (config_of({"worker": addresses}, FIRST), "must be different texts HOST:PORT")
            for addresses in (["a:1", "a:1"], ["a:0", "b:2"], ["a", "b"], ["a:1", "b:65536"])
        ),
    ],
)
def test_rejects_a_cluster_that_is_none(config, expected):
    with pytest.raises(ValueError, match=expected):
        read_config(config)


def test_the_chief_comes_before_the_workers():
    jobs = {"chief": ["c:3"], **TWO}
    assert read_config(config_of(jobs, {"type": "chief", "index": 0}))[1] == 0
    assert read_config(config_of(jobs, {"type": "worker", "index": 1})) == (
        ("c:3", "a:1", "b:2"),
        2,
    )


HOLDS_THE_LOCK = """
import ctypes
from tfdml.runs.meeting import at_most
with at_most(0.1, "took too long"):
    ctypes.PyDLL(None).sleep(60)
"""


def test_a_block_that_takes_too_long_ends_the_process(capfd):
    command = [sys.executable, "-c", HOLDS_THE_LOCK]
    found = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert found.returncode < 0
    assert found.stderr == "took too long\n"
    with at_most(60, "took too long"):
        pass
    assert not capfd.readouterr().err
