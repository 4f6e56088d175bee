"""Objectives: forward and backward of one batch, one thread."""

import dataclasses

import numpy as np

from benchmarks.peers.arrays import written
from benchmarks.peers.case import TFDML, TITLES, Case, worker
from benchmarks.peers.measured_tables import comparison, table, tally
from benchmarks.peers.objectives import OBJECTIVES

PART = "losses"
DIM, PER_CLASS, CLASSES = 128, 4, 1000  # the classes that have proxies
# Spread of what all rows share, and of the middles of classes, where that within a class is 1:
# cosines are about 0.5, as early in training, so that a part of all pairs is active.
SHARED, MIDDLE = 1.0, 0.35
CHECKED = 24  # rows of the comparison of values in float64
EQUAL = 1e-5  # relative difference in float64 that is rounding, of results or of arguments


def cases(arguments, _):
    folder, names = arguments.folder, chosen(arguments.objectives)
    for name in names:
        yield case_of(name, CHECKED, "float64", folder, rounds=0)
    for batch in arguments.batches:
        for name in names:
            yield case_of(name, batch, "float32", folder, rounds=arguments.rounds)


def chosen(names):
    return [name for name in OBJECTIVES if names is None or name in names]


def key_of(name, batch, dtype):
    return f"{PART}/{name}/{batch}/{dtype}"


def case_of(name, batch, dtype, folder, rounds):
    objective = OBJECTIVES[name]
    built = {TFDML: objective.tfdml, **objective.peers}
    sides = {side: (worker(side, PART), dataclasses.asdict(each)) for side, each in built.items()}
    memory = objective.memory if batch <= objective.memory else 0
    inputs = inputs_of(folder, batch, objective.centers, memory)
    settings = {"threads": 1, "inputs": inputs, "dtype": dtype}
    return Case(key_of(name, batch, dtype), sides, settings, rounds)


def inputs_of(folder, batch, centers, memory):
    """Name of the file of rows and labels, with proxies or a memory where there are some."""

    def arrays():
        rng = np.random.default_rng(0)
        middles = SHARED * rng.normal(size=DIM) + MIDDLE * rng.normal(size=(CLASSES, DIM))

        def rows_of(labels):
            rows = middles[labels] + rng.normal(size=(len(labels), DIM))
            return rows.astype("float32")

        labels = np.arange(batch) // PER_CLASS
        made = {"rows": rows_of(labels), "labels": labels}
        if centers:
            made["proxies"] = rng.normal(size=(CLASSES, centers, DIM)).astype("float32")
        if memory:
            made["memory_labels"] = rng.integers(0, CLASSES, memory)
            rows = rows_of(made["memory_labels"])
            made["memory_rows"] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return made

    return written(folder, f"losses_{batch}_{centers}_{memory}", arrays)


def page(records):
    lines = [
        "## Objectives",
        "",
        "Forward and backward of one batch of random 128-d rows, 4 per class, in float32 on one",
        "thread. tfdml and Keras run as a graph function of TensorFlow for any batch size, the",
        "others eagerly. Proxies are of 1,000 classes. Milliseconds are the median of the rounds;",
        "MB are what the first step of this size adds to its process, after one of 8 rows. The",
        "differences are the largest of the value and of the gradient of the rows, relative to",
        "their size; the reasons of those beyond rounding are below.",
    ]
    timed = {key: record for key, record in records.items() if key.endswith("float32")}
    lines += ["", tally(timed.values())]
    for batch in sorted({int(key.split("/")[2]) for key in timed}):
        measured = {name: timed.get(key_of(name, batch, "float32")) for name in OBJECTIVES}
        lines += ["", f"### Batch {batch:,}", ""]
        lines.append(comparison("objective", measured, "ms", differing))
    return [*lines, "", *reasons(records)]


def differing(difference):
    """Columns of the differences of value and gradient."""
    return {name: difference[name]["relative"] for name in ("value", "gradient")}


def reasons(records):
    """Lines on the objectives whose value or gradient differs by more than rounding."""
    rows = []
    for name, objective in OBJECTIVES.items():
        record = records.get(key_of(name, CHECKED, "float64"))
        for side in objective.peers if record else ():
            if side not in record["differences"]:
                rows.append([name, TITLES[side], "not compared, as a side was stopped"])
            elif not is_equal(record, side):
                rows.append([name, TITLES[side], objective.differs.get(side, "not known")])
    head = (
        f"Objectives whose value or gradient differs in float64 too, on {CHECKED} rows of six\n"
        "classes; all others agree:"
    )
    return [head, "", table(["objective", "peer", "reason"], rows)] if rows else []


def is_equal(record, side):
    """Whether value and gradient of a side are those of tfdml in float64."""
    return all(each["relative"] <= EQUAL for each in record["differences"][side].values())
