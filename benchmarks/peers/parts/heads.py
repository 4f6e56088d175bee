"""A head on the features of a frozen backbone: its whole training, and the Recall@1 that it has."""

import dataclasses
import os
import shutil

import numpy as np

from benchmarks.peers.arrays import written
from benchmarks.peers.case import OML, PML, ST, TFDML, Case, worker
from benchmarks.peers.measured_tables import comparison
from benchmarks.peers.objectives import OBJECTIVES, Objective, peer, tfdml

PART = "heads"
CLASSES, PER_CLASS, WIDTH = 200, 59, 1280  # as of the birds, by MobileNetV2
MARGIN = 0.2
HEADS = {
    **{name: OBJECTIVES[name] for name in ("multi-similarity", "ArcFace", "Proxy-Anchor")},
    "triplet, hard": Objective(
        tfdml("triplet", margin=MARGIN, mining="hard", squared=False),
        {
            PML: peer("TripletMarginLoss", ("BatchHardMiner", {}), margin=MARGIN),
            OML: peer("TripletLossWithMiner", ("HardTripletsMiner", {}), margin=MARGIN),
            ST: peer("BatchHardTripletLoss", margin=MARGIN),
        },
    ),
}
SETTINGS = {"embedding_dim": 512, "classes_per_batch": 32, "images_per_class": 4, "rate": 1e-4}


def cases(arguments, _):
    for name, objective in HEADS.items():
        settings = {
            "threads": os.cpu_count(),
            "inputs": features_of(arguments),
            "steps": int(arguments.steps or 1000),
            **SETTINGS,
        }
        built = {TFDML: objective.tfdml, **objective.peers}
        sides = {side: (worker(side, PART), dataclasses.asdict(of)) for side, of in built.items()}
        yield Case(f"{PART}/{name}", sides, settings, arguments.rounds)


def features_of(arguments):
    """Name of the file of `embeddings` and `labels` in --folder: a copy of --features, or made."""
    if arguments.features:
        copy = arguments.folder / arguments.features.name
        if not copy.exists() or not copy.samefile(arguments.features):
            shutil.copyfile(arguments.features, copy)
        return copy.name
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
        "the export, and by a loop of PyTorch with the loss of the peer, on rows of unit length,",
        "and its sampler; sentence-transformers with that of pytorch-metric-learning. The options",
        f"of an objective are the same on all sides, of triplets the margin {MARGIN}.",
        "",
        comparison("objective", chosen, "s", lambda of: {"Recall@1": of["recall"]["absolute"]}),
    ]
