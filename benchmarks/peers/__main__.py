"""Compares tfdml with the libraries that people would otherwise pick, on this computer.

    python benchmarks/peers                               # everything
    python benchmarks/peers --only losses --batches 128   # a part
    python benchmarks/peers --write                       # only the page, of what was measured

Each case is measured with the same inputs on every side, in turns, each side in a process of its
own: tfdml with this Python, the peers in an environment of `requirements.txt` that is built in
--folder. A case that was measured is not measured again, so that a stopped run goes on; delete its
entry from results.json in --folder, or that file, to repeat it. At the end the page is written.
Needs Linux, Python 3.11 or 3.12, and an idle computer: the times are those of this one.
"""

import argparse
import importlib
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.peers.case import TFDML  # noqa: E402
from benchmarks.peers.environment import python_of_peers  # noqa: E402
from benchmarks.peers.exported import check_data  # noqa: E402
from benchmarks.peers.objectives import OBJECTIVES  # noqa: E402
from benchmarks.peers.page import page_of  # noqa: E402
from benchmarks.peers.parts.evaluation import CLASSES  # noqa: E402
from benchmarks.peers.racers import RACES  # noqa: E402
from benchmarks.peers.results import Results  # noqa: E402
from benchmarks.peers.turns import measure  # noqa: E402
from tfdml.command_line import one_sentence, write_text  # noqa: E402
from tfdml.progress import progress  # noqa: E402

PROGRAM = "benchmarks/peers"
PARTS = ("losses", "evaluation", "samplers", "steps", "race")


def main(arguments=None):
    given = parse(arguments)
    go_on = "stopped; the same command goes on"
    with one_sentence(PROGRAM, ValueError, RuntimeError, OSError, stopped=go_on):
        results = Results(given.folder / "results.json")
        if "race" in given.only and not given.write:
            check_data([RACES[name] for name in given.races], given.data_dir)
        if not given.write:
            given.folder.mkdir(parents=True, exist_ok=True)
            run(given, results)
        write_text(given.out, page_of(results, parts(PARTS)))
    print(f"Page: {given.out}   Measurements: {results.path}")


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
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
        "--rows", type=int, nargs="+", choices=CLASSES, default=[*CLASSES], help="of the evaluation"
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
    parser.add_argument("--rounds", type=int, default=5, help="turns of each side; default: 5")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("runs/peers"))
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs" / "results" / "peers.md")
    parser.add_argument("--write", action="store_true", help="measure nothing, write the page")
    return parser.parse_args(arguments)


def listed(names):
    return f"of {', '.join(names)}; default: all"


def parts(names):
    return [importlib.import_module(f"benchmarks.peers.parts.{name}") for name in names]


def run(given, results):
    """Measures every case of the chosen parts that was not measured."""
    peers = python_of_peers(given.folder)
    results.drop_failures()
    for part in parts(given.only):
        # Again, as what a part measured may lead to further cases.
        while todo := [each for each in part.cases(given, results) if not results.has(each)]:
            for case in progress(part.PART, todo, unit="case"):
                pythons = dict.fromkeys(case.sides, peers) | {TFDML: sys.executable}
                results.add(case, measure(case, pythons, given.folder))


if __name__ == "__main__":
    main()
