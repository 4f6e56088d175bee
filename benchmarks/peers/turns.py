"""Measures a case: all sides are prepared, then work in turns, one at a time."""

import contextlib
import os
import pathlib
import platform
import statistics

import numpy as np

from benchmarks.peers.process import StoppedError, Worker


def measure(case, pythons, folder):
    """The record of a case.

    Args:
        case: `Case`.
        pythons: Name of a side -> interpreter that has its libraries.
        folder: Folder of the inputs, which must exist, and of the outputs.

    Returns:
        {"case": its description, "computer": its name, "load": that of the computer before,
        "sides": {side: {"seconds": median of the rounds, "rounds": [seconds], "megabytes",
        "outputs": {name: number}} or {"stopped": why}},
        "differences": {side: {name: {"absolute", "relative"}}} from the first}.
    """
    load, sides, running = os.getloadavg()[0], {side: {} for side in case.sides}, {}
    with contextlib.ExitStack() as ended:
        for side, (module, own) in case.sides.items():
            settings = {**case.settings, **own, "outputs": f"{side}.npz"}
            worker = Worker(side, pythons[side], module, settings, folder, case.gigabytes)
            running[side] = ended.enter_context(worker)
        for side in list(running):
            with stopping(sides, running, side):
                sides[side]["versions"] = running[side].started()
        for side in list(running):
            with stopping(sides, running, side):
                sides[side] |= running[side].ask("once", case.seconds)
        for _ in range(case.rounds):
            for side in [side for side in running if spent(sides[side]) < case.seconds]:
                with stopping(sides, running, side):
                    seconds = running[side].ask("round", case.seconds)["seconds"]
                    sides[side].setdefault("rounds", []).append(seconds)
    outputs = {side: np.load(folder / f"{side}.npz") for side in running}
    for side in running:
        if case.rounds:
            sides[side]["seconds"] = statistics.median(sides[side]["rounds"])
        arrays = outputs[side].items()
        sides[side]["outputs"] = {name: float(a) for name, a in arrays if a.ndim == 0}
    described = {"case": case.description(), "computer": computer(), "load": round(load, 2)}
    described["sides"] = sides
    reference = outputs.pop(next(iter(case.sides)), None)
    return {**described, "differences": differences(reference, outputs) if reference else {}}


def computer():
    """Processor, number of cores and Python of this computer."""
    processor = platform.machine()
    for line in pathlib.Path("/proc/cpuinfo").read_text("utf-8").splitlines():
        if line.startswith("model name"):
            processor = line.partition(":")[2].strip()
    return f"{processor}, {os.cpu_count()} cores, Python {platform.python_version()}"


def spent(side):
    """Seconds of the rounds of a side: one that is slow has fewer rounds."""
    return sum(side.get("rounds", ()))


@contextlib.contextmanager
def stopping(sides, running, side):
    """Notes why a side was stopped, and leaves it out from then on."""
    try:
        yield
    except StoppedError as stopped:
        sides[side] = {"stopped": str(stopped)}
        running.pop(side).__exit__()


def differences(reference, outputs):
    """Largest difference of each output of a side from the reference's, also relative to its size.

    Args:
        reference: {name: array} of the first side.
        outputs: Side -> the same of each other.
    """
    return {
        side: {
            name: difference(reference[name], arrays[name])
            for name in reference
            if name in arrays and reference[name].shape == arrays[name].shape
        }
        for side, arrays in outputs.items()
    }


def difference(a, b):
    absolute = float(np.max(np.abs(np.float64(a) - b), initial=0.0))
    size = float(max(np.max(np.abs(a), initial=0.0), np.max(np.abs(b), initial=0.0)))
    return {"absolute": absolute, "relative": absolute / size if size else 0.0}
