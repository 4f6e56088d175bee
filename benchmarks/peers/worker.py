"""A process that does the work of one side: `python -m benchmarks.peers.worker MODULE FOLDER`.

It reads its settings, a line of JSON, from the standard input, and imports `prepare(settings,
folder)` of the module, which returns a function without arguments: the work, which
returns {name: array}. Then each line is a command: `once` works once, measures time and memory and
writes what the work returned to a file; `round` works for a while and measures time. Each answer is
a line of JSON. Runs in the environments of both sides, so it needs NumPy alone.
"""

import importlib
import json
import os
import pathlib
import statistics
import sys
import time

import numpy as np

from benchmarks.peak_memory import forget_peak, peak_memory

SECONDS = 0.3  # of a round, and at least one call


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    module, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    settings = json.loads(sys.stdin.readline())
    if settings["threads"] == 1:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    work = importlib.import_module(module).prepare(settings, folder)
    answer = {"versions": getattr(work, "versions", {})}
    while True:
        print(json.dumps(answer), file=answers, flush=True)
        command = sys.stdin.readline().strip()
        if not command:
            return
        answer = round_of(work) if command == "round" else once(work, folder / settings["outputs"])


def once(work, path):
    """Seconds of the first call and megabytes that it added; writes what it returned."""
    before = forget_peak()
    start = time.perf_counter()
    outputs = work()
    seconds = time.perf_counter() - start
    megabytes = (peak_memory() - before) / 2**20
    np.savez(path, **{name: np.asarray(value) for name, value in outputs.items()})
    return {"seconds": seconds, "megabytes": megabytes}


def round_of(work):
    """The median seconds of the calls of a round."""
    seconds = []
    while sum(seconds) < SECONDS:
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return {"seconds": statistics.median(seconds)}


if __name__ == "__main__":
    main()
