import subprocess
import sys

import pytest

import tfdml.client


def test_the_former_names_of_the_client_warn():
    with pytest.warns(DeprecationWarning, match=r"use tfdml\.client\.Client"):
        from tfdml.serving.client import Client
    assert Client is tfdml.client.Client
    with pytest.warns(DeprecationWarning, match=r"use tfdml\.client\.Client"):
        from tfdml.serving import Client
    assert Client is tfdml.client.Client
    with pytest.raises(ImportError, match="nothing"):
        from tfdml.serving.client import nothing  # noqa: F401


@pytest.mark.parametrize("room", ["client", "search"])
def test_the_former_commands_name_the_new_ones(room):
    command = [sys.executable, "-m", f"tfdml.serving.{room}", "--help"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert f"use python -m tfdml.{room}\n" in run.stderr
    assert "--model" in run.stdout
