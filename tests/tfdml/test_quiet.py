"""What a process prints, whatever its standard streams are."""

import io
import os
import subprocess
import sys
import threading

import pytest

from tfdml.quiet import flush, keep_printing, progress

TEXT = "run опыт → 猫 \udcff"


@pytest.fixture
def streams(monkeypatch):
    """Sets the standard output and error, and then calls `keep_printing`."""

    def replaced(stdout, stderr=None):
        monkeypatch.setattr(sys, "stdout", stdout)
        monkeypatch.setattr(sys, "stderr", stderr or stdout)
        keep_printing()

    return replaced


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_characters_that_an_encoding_lacks_are_escaped(encoding, streams):
    written = io.BytesIO()
    streams(io.TextIOWrapper(written, encoding))
    print(TEXT, flush=True)
    assert written.getvalue() == f"{TEXT}\n".encode(encoding, "backslashreplace")


@pytest.mark.parametrize("buffering", [0, -1])
def test_a_file_gets_what_is_printed_before_and_after(buffering, streams, tmp_path):
    with open(tmp_path / "log", "wb", buffering) as file:
        stream = io.TextIOWrapper(file, "ascii", write_through=not buffering)
        stream.write("first ")
        streams(stream)
        keep_printing()
        print(TEXT)
        flush()
    printed = (tmp_path / "log").read_text("ascii")
    assert printed == "first " + f"{TEXT}\n".encode("ascii", "backslashreplace").decode()


def without_reader():
    reader, writer = os.pipe()
    os.close(reader)
    return writer


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux")
@pytest.mark.parametrize("buffering", [0, -1])
@pytest.mark.parametrize(
    "descriptor",
    [
        without_reader,
        lambda: os.open("/dev/full", os.O_WRONLY),
        lambda: os.open(os.devnull, os.O_RDONLY),
    ],
    ids=["no reader", "full", "not writable"],
)
def test_what_cannot_be_written_is_dropped(descriptor, buffering, streams):
    with open(descriptor(), "wb", buffering) as file:
        streams(io.TextIOWrapper(file, "utf-8", write_through=not buffering))
        for stream in (sys.stdout, sys.stderr):
            print(TEXT * 10_000, file=stream, flush=True)
        flush()


def test_a_full_pipe_that_does_not_block_loses_nothing(streams):
    source, end = os.pipe()
    os.set_blocking(end, False)
    received = []
    with open(source, "rb") as reader, open(end, "w") as stream:
        streams(stream)
        thread = threading.Thread(target=lambda: received.append(reader.read()))
        thread.start()
        print("x" * 2**20, flush=True)
        stream.close()
        thread.join()
    assert received == [b"x" * 2**20 + b"\n"]


def closed():
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("stream", [None, closed()])
def test_without_streams_nothing_is_printed(stream, streams, monkeypatch):
    streams(stream)
    print(TEXT)
    print(TEXT, file=sys.stderr, flush=True)
    monkeypatch.setattr(sys, "stdout", stream)  # as of a program that uses tfdml
    flush()


PROGRAM = """
import pathlib, subprocess
from tfdml.quiet import keep_printing
keep_printing()
with open("file", "wb") as file:
    print("of Python", flush=True)
    subprocess.run(["sh", "-c", "echo of a child"])
assert not pathlib.Path("file").read_bytes()
print("at the end")
"""


@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", ">&-", "2>&-", "2>errors | true"])
def test_a_process_outlives_its_streams(closed, tmp_path):
    command = f'{{ sleep 0.1; "$0" -c "$1"; echo $? >status; }} {closed}'
    process = [sys.executable, PROGRAM]
    subprocess.run(["sh", "-c", command, *process], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "status").read_text() == "0\n"
    if "errors" in closed:  # not those of the child
        assert "BrokenPipeError" not in (tmp_path / "errors").read_text()


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "shown", "expected"),
    [(Terminal, True, True), (Terminal, False, False), (io.StringIO, True, False)],
)
def test_is_shown_in_a_terminal_if_asked_for(stream, shown, expected, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream())
    with progress("Counting", total=3, shown=shown) as bar:
        assert bar.disable != expected
