"""A head on the features of a frozen backbone: its whole training, and the Recall@1 that it has."""

import os

import numpy as np

from benchmarks.peers.arrays import written
from benchmarks.peers.case import PML, TFDML, Case, worker
from benchmarks.peers.measured_tables import comparison

PART = "heads"
CLASSES, PER_CLASS, WIDTH = 200, 59, 1280  # as of the birds, by MobileNetV2
OBJECTIVES = ("multi_similarity", "contrastive", "triplet", "arcface", "proxy_anchor")
SETTINGS = {"embedding_dim": 512, "classes_per_batch": 32, "images_per_class": 4, "rate": 1e-4}


def cases(arguments, _):
    for objective in OBJECTIVES:
        settings = {
            "threads": os.cpu_count(),
            "inputs": features_of(arguments),
            "objective": objective,
            "steps": int(arguments.steps or 1000),
            **SETTINGS,
        }
        sides = {side: (worker(side, PART), {}) for side in (TFDML, PML)}
        yield Case(f"{PART}/{objective}", sides, settings, arguments.rounds)


def features_of(arguments):
    """The file of features, `embeddings` and `labels`: one that is given, or made."""
    if arguments.features:
        return str(arguments.features)
    return written(arguments.folder, PART, arrays)


def arrays():
    """Rows around centres, of which a tenth of the numbers tells the classes apart."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(CLASSES), PER_CLASS)
    centres = rng.normal(size=(CLASSES, WIDTH)) * (np.arange(WIDTH) % 10 == 0)
    rows = np.maximum(0, 2 * centres[labels] + 3 * rng.normal(size=(len(labels), WIDTH)))
    return {"embeddings": rows.astype("float32"), "labels": labels}


def page(records):
    chosen = {key.removeprefix(f"{PART}/"): record for key, record in records.items()}
    steps = next(iter(records.values()))["case"]["settings"]["steps"]
    return [
        "## Heads on features",
        "",
        "A linear layer of 512 numbers on given features, which starts from",
        f"their principal components, and {steps:,} steps of Adam on 32 × 4 rows: from reading the",
        "file to Recall@1 on the other half of the classes, by `--dataset features:FILE` without",
        "the export, and by a loop of PyTorch with the sampler and loss of the peer. Objectives",
        "have each side's defaults.",
        "",
        comparison("objective", chosen, "s", lambda of: {"Recall@1": of["recall"]["absolute"]}),
    ]
