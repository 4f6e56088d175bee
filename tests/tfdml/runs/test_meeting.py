"""The meeting of the workers, each in a thread of this process."""

import concurrent.futures
import socket
import time

import pytest

from benchmarks.workers import free_addresses
from tfdml.runs import meeting
from tfdml.runs.meeting import Meeting


@pytest.fixture(autouse=True)
def shorter(monkeypatch):
    monkeypatch.setattr(meeting, "SECONDS", 30)


@pytest.fixture
def addresses():
    return free_addresses(3)


@pytest.fixture
def workers(addresses):
    found = [Meeting(addresses, index) for index in range(3)]
    yield found
    for each in found:
        each.close()


def all_of(*calls):
    """What the calls, made at once, raise; an empty text for one that returns."""

    def caught(call):
        try:
            return call() or ""
        except OSError as error:
            return str(error)

    with concurrent.futures.ThreadPoolExecutor() as threads:
        return list(threads.map(caught, calls))


def test_all_go_on_again_and_again_and_leave_their_ports(workers, addresses):
    for _ in range(3):
        assert all_of(*[each.agree for each in workers]) == ["", "", ""]
    for each in workers:
        each.close()
    for each in workers:
        each.reject()  # the meeting is over
    for address in addresses:
        host, port = address.split(":")
        socket.create_server((host, int(port))).close()


@pytest.mark.parametrize("rejected", [0, 1, 2])
def test_a_rejected_worker_ends_the_others(rejected, workers, addresses):
    calls = [each.reject if each is workers[rejected] else each.agree for each in workers]
    errors = all_of(*calls)
    assert not errors.pop(rejected)
    assert errors == [f"worker {addresses[rejected]} was rejected: see what it printed"] * 2


@pytest.mark.parametrize("stopped", [0, 1])
def test_a_worker_that_stops_after_all_have_met_ends_the_others(stopped, workers, addresses):
    assert all_of(*[each.agree for each in workers]) == ["", "", ""]
    workers.pop(stopped).close()
    for error in all_of(*[each.agree for each in workers]):
        assert f"worker {addresses[stopped]}" in error
        assert "stopped, or cannot be reached" in error


@pytest.mark.parametrize("late", [0, 2])
def test_names_the_worker_that_does_not_come(late, workers, addresses, monkeypatch):
    monkeypatch.setattr(meeting, "SECONDS", 0.5)
    del workers[late]
    for error in all_of(*[each.agree for each in workers]):
        assert f"no answer from {addresses[late]}" in error
        assert "in 0.5 s" in error


def test_does_not_wait_long_to_tell_of_a_rejection(workers, monkeypatch):
    monkeypatch.setattr(meeting, "SECONDS_REJECTED", 0.2)
    began = time.monotonic()
    workers[0].reject()
    workers[1].reject()
    assert time.monotonic() - began < 5


def connected(address):
    """A connection, once something listens."""
    host, port = address.split(":")
    while True:
        try:
            return socket.create_connection((host, int(port)))
        except OSError:
            time.sleep(0.01)


def test_a_worker_that_starts_again_takes_its_place(workers, addresses):
    with concurrent.futures.ThreadPoolExecutor() as threads:
        chief = threads.submit(workers[0].agree)
        with connected(addresses[0]) as stopped:
            stopped.sendall(f'["{addresses[1]}", ""]\n'.encode())
        other = threads.submit(workers[2].agree)
        assert not concurrent.futures.wait([chief, other], timeout=0.3).done
        for each in (threads.submit(workers[1].agree), other, chief):
            each.result()


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\n", b'["other:1", "stop"]\n', b"1\n", b""])
def test_programs_that_are_no_workers_are_not_heard(sent, workers, addresses):
    with concurrent.futures.ThreadPoolExecutor() as threads:
        chief = threads.submit(workers[0].agree)
        with connected(addresses[0]) as stranger:
            stranger.sendall(sent)
        others = [threads.submit(each.agree) for each in workers[1:]]
        for each in (chief, *others):
            each.result()


def test_says_that_its_port_is_taken(workers, addresses):
    host, port = addresses[1].split(":")
    with (
        socket.create_server((host, int(port))),
        pytest.raises(OSError, match=f"cannot listen at {addresses[1]}: Address already in use"),
    ):
        workers[1].agree()


def test_a_single_worker_meets_nobody(capsys):
    alone = Meeting(free_addresses(1), 0)
    alone.agree()
    alone.reject()
    alone.close()
    assert not capsys.readouterr().err
