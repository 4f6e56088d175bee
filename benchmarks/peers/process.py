"""The process of one side, and what stops it: a limit of time or memory, or its own failure."""

import contextlib
import json
import os
import pathlib
import select
import signal
import subprocess
import time

from benchmarks.peak_memory import resident_memory

ROOT = pathlib.Path(__file__).resolve().parents[2]
POLL = 0.02  # seconds between looks at the memory
START = 600.0  # seconds to import a framework and to prepare the work
FAILED = "failed: "  # how the text of a side that failed begins
OUT_OF_MEMORY = ("can't allocate memory", "MemoryError", "Unable to allocate")
THREADS = (  # environment variables of the libraries of both sides
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
)


class StoppedError(RuntimeError):
    """A side was stopped; its text says why, as the page does."""


class Worker:
    """A process of `worker.py`, ended with the block.

    Args:
        side: Name of the side.
        python: Interpreter that has the side's libraries.
        module: Name of its module, such as `workers.tfdml_losses`.
        settings: Its settings.
        folder: Folder of the inputs and outputs.
        gigabytes: Most memory that it may hold.
    """

    def __init__(self, side, python, module, settings, folder, gigabytes):
        self.gigabytes, self.log = gigabytes, folder / f"{side}.log"
        command = [str(python), "-m", "benchmarks.peers.worker", module, str(folder)]
        paths = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
        threads = dict.fromkeys(THREADS, str(settings["threads"]))
        environment = {**os.environ, **threads, "PYTHONPATH": os.pathsep.join(paths)}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "encoding": "utf-8"}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, env=environment, stderr=log, cwd=ROOT, start_new_session=True, **pipes
            )
        self._send(json.dumps(settings))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        with contextlib.suppress(BrokenPipeError):  # what it did not read
            self.process.stdin.close()
        self.process.stdout.close()

    def started(self):
        """Waits until it is prepared; returns the versions of its libraries."""
        return self._answer(START)["versions"]

    def ask(self, command, seconds):
        """The answer to a command, as `worker.py` describes it.

        Raises:
            StoppedError: If it takes longer than so many seconds or too much memory, or fails.
        """
        self._send(command)
        return self._answer(seconds)

    def _send(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise StoppedError(self._failure()) from None

    def _answer(self, seconds):
        until = time.monotonic() + seconds
        while not select.select([self.process.stdout], [], [], POLL)[0]:
            if time.monotonic() > until:
                raise StoppedError(f"> {seconds:g} s")
            if resident_memory(self.process.pid) > self.gigabytes * 1e9:
                raise StoppedError(f"> {self.gigabytes:g} GB")
        line = self.process.stdout.readline()
        if not line:
            raise StoppedError(self._failure())
        return json.loads(line)

    def _failure(self):
        self.process.wait()
        lines = self.log.read_text("utf-8", errors="replace").strip().splitlines()
        last = lines[-1] if lines else f"code {self.process.returncode}"
        if any(words in last for words in OUT_OF_MEMORY):
            return f"> {self.gigabytes:g} GB"
        return FAILED + last
