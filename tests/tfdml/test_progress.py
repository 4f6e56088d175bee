import io
import os
import sys

import pytest

from tfdml.progress import progress


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


def test_is_shown_in_a_terminal_without_a_size(monkeypatch):
    terminal, end = pytest.importorskip("pty").openpty()
    os.set_blocking(terminal, False)
    with open(end, "w") as stream:
        assert os.get_terminal_size(end).columns == 0
        monkeypatch.setattr(sys, "stderr", stream)
        with progress("Counting", total=3) as bar:
            bar.display()
        assert b"Counting" in os.read(terminal, 1000)
    os.close(terminal)
