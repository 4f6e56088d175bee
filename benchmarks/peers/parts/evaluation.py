"""Scores of retrieval over a whole test set, on all cores."""

import os

import numpy as np

from benchmarks.peers.arrays import labels_of, written
from benchmarks.peers.case import FAISS, OML, PML, TFDML, Case, worker
from benchmarks.peers.measured_tables import comparison, tally

PART = "evaluation"
DIM = 128
CLASSES = {5_924: 100, 60_502: 11_316}  # rows -> classes: CUB-200-2011, Stanford Online Products
SPREAD = 1.5  # of the rows of a class, in units of the spread of the classes
ROUNDS = 3
RECALLS = [1, 10, 100, 1000]
AT_R = ["precision_at_1", "mean_average_precision_at_r", "r_precision"]
RANKING = [*AT_R, "mean_average_precision", "mean_reciprocal_rank"]
# What is scored: side -> settings of its worker.
TASKS = {
    "Recall@1": {
        TFDML: {"k": [1], "metrics": ["recall"]},
        PML: {"include": AT_R[:1], "neighbours": 1},
        OML: {"k": [1]},
        FAISS: {"k": [1]},
    },
    "Recall@1, 10, 100, 1000": {
        TFDML: {"k": RECALLS, "metrics": ["recall"]},
        OML: {"k": RECALLS},
        FAISS: {"k": RECALLS},
    },
    "Recall@1, MAP@R, R-precision": {
        TFDML: {"k": [1], "metrics": ["recall", "map@r", "r_precision"]},
        PML: {"include": AT_R, "neighbours": "max_bin_count"},
    },
    "these, MAP and MRR": {
        TFDML: {"k": [1], "metrics": ["recall", "map@r", "r_precision", "map", "mrr"]},
        PML: {"include": RANKING, "neighbours": None},
    },
}


def cases(arguments, _):
    for rows in arguments.rows:
        for task, sides in TASKS.items():
            settings = {
                "threads": os.cpu_count(),
                "inputs": inputs_of(arguments.folder, rows),
                "dtype": "float32",
            }
            modules = {side: (worker(side, PART), own) for side, own in sides.items()}
            yield Case(key_of(task, rows), modules, settings, min(ROUNDS, arguments.rounds))


def key_of(task, rows):
    return f"{PART}/{task}/{rows}"


def inputs_of(folder, rows):
    """Name of the file of so many rows around class centres, two or more of each class."""

    def arrays():
        rng, classes = np.random.default_rng(0), CLASSES[rows]
        labels = labels_of(rng, rows, classes)
        centres = rng.normal(size=(classes, DIM))
        near = centres[labels] + SPREAD * rng.normal(size=(rows, DIM))
        return {"rows": near.astype("float32"), "labels": labels}

    return written(folder, f"evaluation_{rows}", arrays)


def page(records):
    lines = [
        "## Evaluation",
        "",
        "Every row is a query in all others. The rows are float32; tfdml counts distances within",
        "its rounding errors against the query. `k` of pytorch-metric-learning is 1",
        "for Recall@1, `None` for what needs the whole ranking, else the size of the largest",
        "class. `faiss` is an exact search by it with Recall@K in NumPy.",
        "",
        tally(records.values()),
    ]
    for rows in sorted({int(key.split("/")[2]) for key in records}):
        measured = {task: records.get(key_of(task, rows)) for task in TASKS}
        lines += ["", f"### {rows:,} rows", "", comparison("scores", measured, "s", differing)]
    return lines


def differing(difference):
    return {"scores": max(each["absolute"] for each in difference.values())}
