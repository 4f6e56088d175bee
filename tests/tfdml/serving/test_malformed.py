"""Malformed inputs, each an error that the process outlives.

TFDML_MALFORMED sets how many; 10,000 take minutes.
"""

import json
import os
import pathlib
import subprocess
import sys

import malformed
import pytest

COUNT = int(os.environ.get("TFDML_MALFORMED", "700"))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.slow
def test_each_is_an_error_and_the_process_goes_on(served):
    # A process of its own, whose memory is limited and measured.
    command = [sys.executable, malformed.__file__, str(served.folder / "2"), str(COUNT)]
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[2])}
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr[-2000:]
    report = json.loads(run.stdout)
    assert set(report["kinds"]) == set(malformed.KINDS)
    assert sum(sum(codes.values()) for codes in report["kinds"].values()) == COUNT
    codes = {code for found in report["kinds"].values() for code in found}
    assert codes <= {"INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"}
    assert report["peak_megabytes"] < 3000
