"""The command line."""

import argparse
import os
import pathlib

import numpy as np

from benchmarks.peers.objectives import OBJECTIVES
from benchmarks.peers.parts import evaluation, losses
from benchmarks.peers.racers import RACES

PROGRAM = "benchmarks/peers"
PARTS = ("losses", "evaluation", "samplers", "steps", "heads", "race")

RANGES = {  # of numbers: least and most
    "batches": (8, losses.PER_CLASS * losses.CLASSES),
    "rounds": (1, 1000),
    "seconds": (1, 1_000_000),
    "trial_seconds": (1, 1_000_000),
    "steps": (1, 1_000_000),
}


def parse(description, arguments=None):
    """The arguments of the command line; exits with code 2 and a sentence for wrong ones.

    Args:
        description: The docstring of the program.
        arguments: List of texts; those of the process if None.
    """
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=listed(PARTS)
    )
    parser.add_argument(
        "--objectives", nargs="+", choices=OBJECTIVES, metavar="NAME", help=listed(OBJECTIVES)
    )
    parser.add_argument(
        "--batches", type=int, nargs="+", default=[128, 512, 2048], help="of the objectives"
    )
    parser.add_argument(
        "--rows",
        type=int,
        nargs="+",
        choices=evaluation.CLASSES,
        default=[*evaluation.CLASSES],
        help="of the evaluation",
    )
    options = {"nargs": "+", "choices": RACES, "default": [*RACES], "metavar": "NAME"}
    parser.add_argument("--races", help=listed(RACES), **options)
    for name in ("seconds", "trial_seconds", "steps"):
        parser.add_argument(f"--{name}", type=float, help="of a run, in place of the race's own")
    parser.add_argument(
        "--data_dir",
        type=pathlib.Path,
        default=os.environ.get("TFDML_DATA"),
        help="of the race: tfds/, cub200/, cars196/ and weights/; default: TFDML_DATA",
    )
    explained = "file of features for heads, as evaluate.py --embeddings reads; made if not given"
    parser.add_argument("--features", type=pathlib.Path, help=explained)
    parser.add_argument("--rounds", type=int, default=5, help="turns of each side; default: 5")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("runs/peers"))
    parser.add_argument("--docs", type=pathlib.Path, help="to write to; default: --folder")
    parser.add_argument("--write", action="store_true", help="measure nothing, write the pages")
    given = parser.parse_args(arguments)
    given.folder = given.folder.resolve()  # for processes that start elsewhere
    given.docs = given.docs or given.folder
    if given.data_dir is not None:
        given.data_dir = given.data_dir.resolve()
    for name, (least, most) in RANGES.items():
        values = getattr(given, name)
        if values is not None and not all(least <= each <= most for each in np.atleast_1d(values)):
            parser.error(f"--{name} must be from {least:,} to {most:,}. Received: {values}")
    if given.features is not None:
        given.features = given.features.resolve()
    return given


def listed(names):
    return f"of {', '.join(names)}; default: all"
