"""Samplers of balanced batches over as many classes as Stanford Online Products trains on."""

import os

import numpy as np

from benchmarks.peers.arrays import labels_of, written
from benchmarks.peers.case import OML, PML, TFDML, Case, worker
from benchmarks.peers.measured_tables import comparison

PART = "samplers"
CLASSES, IMAGES = 11_318, 59_551
SHAPE = {"classes_per_batch": 32, "images_per_class": 4}
BATCHES = 1000
TASKS = {"first batch": 0, f"{BATCHES:,} batches": BATCHES}


def cases(arguments, _):
    def arrays():
        return {"labels": labels_of(np.random.default_rng(0), IMAGES, CLASSES)}

    inputs = written(arguments.folder, f"samplers_{IMAGES}", arrays)
    sides = {side: (worker(side, PART), SHAPE) for side in (TFDML, PML, OML)}
    for task, batches in TASKS.items():
        settings = {"threads": os.cpu_count(), "inputs": inputs, "batches": batches}
        rounds = arguments.rounds if batches else 0  # there is one first batch of a process
        yield Case(f"{PART}/{task}", sides, settings, rounds)


def page(records):
    chosen = {key.split("/")[1]: record for key, record in records.items()}
    return [
        "## Samplers",
        "",
        f"Indices of {SHAPE['classes_per_batch']} classes × {SHAPE['images_per_class']} images, of",
        f"{IMAGES:,} images of {CLASSES:,} classes: from the labels to the first batch of a new",
        f"process, measured once, and {BATCHES:,} further batches, epoch after epoch, on all",
        "cores. tfdml also resumes at any step, and gives the same batches for the same seed.",
        "",
        comparison("samplers", chosen, "s", lambda _: {}),
    ]
