"""What ends a process that holds the lock of the interpreter."""

import subprocess
import sys

from tfdml.runs.interrupts import at_most

HOLDS_THE_LOCK = """
import ctypes
from tfdml.runs.interrupts import at_most
with at_most(0.1, "took too long"):
    ctypes.PyDLL(None).sleep(60)
"""


def test_a_block_that_takes_too_long_ends_the_process():
    command = [sys.executable, "-c", HOLDS_THE_LOCK]
    found = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert found.returncode < 0
    assert found.stderr == "took too long\n"


def test_a_block_that_ends_in_time_goes_on(capfd):
    with at_most(60, "took too long"):
        pass
    assert not capfd.readouterr().err
