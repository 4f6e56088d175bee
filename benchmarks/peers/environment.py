"""The environment of the peers: a virtual environment of pinned requirements, built once."""

import hashlib
import pathlib
import subprocess
import sys

from tfdml.checks import check

REQUIREMENTS = pathlib.Path(__file__).with_name("requirements.txt")
PYTHONS = ((3, 11), (3, 12))  # that all of the requirements have wheels for
BUILT = "built"  # file in the environment once it is complete


def python_of_peers(folder):
    """The interpreter that has the peers; builds its environment in the folder if needed.

    Args:
        folder: `pathlib.Path`; the environment gets a sub-folder named after its requirements.

    Raises:
        ValueError: If this Python is not one of `PYTHONS`.
        RuntimeError: If pip fails; the message has its last line.
    """
    content = REQUIREMENTS.read_bytes()
    environment = folder / f"environment-{hashlib.sha256(content).hexdigest()[:12]}"
    python = environment / "bin" / "python"
    if (environment / BUILT).exists():
        return python
    expectation = "the peers must be installed by Python 3.11 or 3.12, which runs this program too"
    check(sys.version_info[:2] in PYTHONS, expectation, python=sys.version.split()[0])
    print(f"Building the environment of the peers in {environment}", flush=True)
    run(sys.executable, "-m", "venv", "--clear", environment)
    run(python, "-m", "pip", "install", "--quiet", "-r", REQUIREMENTS)
    (environment / BUILT).touch()
    return python


def run(*command):
    done = subprocess.run([*map(str, command)], capture_output=True, encoding="utf-8")
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise RuntimeError(f"{' '.join(map(str, command))} failed: {' '.join(last)}")
