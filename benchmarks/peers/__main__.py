"""Compares tfdml with the libraries that people would otherwise pick, on this computer.

    python benchmarks/peers                               # everything
    python benchmarks/peers --only losses --batches 128   # a part
    python benchmarks/peers --docs docs --write           # only the pages, of what was measured

Each case is measured with the same inputs on every side, in turns, each side in a process of its
own: tfdml with this Python, the peers in an environment of `requirements.txt` that is built in
--folder. The measurements are kept in results/peers.json in --docs. A case that was measured is not
measured again, so that a stopped run goes on; delete its entry, or that file, to repeat it. At the
end the page results/peers.md is written beside them, and, in a folder that has that page, the table
of objectives in coming_from/pytorch_metric_learning.md. Needs Linux, Python 3.11 or 3.12, and an
idle computer: the times are those of this one.
"""

import importlib
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from benchmarks.peers.arguments import PARTS, PROGRAM, parse
from benchmarks.peers.case import OWN
from benchmarks.peers.coming_from import write_comparison
from benchmarks.peers.environment import python_of_peers
from benchmarks.peers.measurements import Results
from benchmarks.peers.peers_page import page_of
from benchmarks.peers.prepared import check_data
from benchmarks.peers.racers import RACES
from benchmarks.peers.turns import measure
from tfdml.checks import check
from tfdml.command_line import one_sentence
from tfdml.files import locked, write_text
from tfdml.quiet import progress


def main(arguments=None):
    given = parse(__doc__, arguments)
    go_on = "stopped; the same command goes on"
    with one_sentence(PROGRAM, ValueError, RuntimeError, OSError, stopped=go_on):
        results = Results(given.docs / "results" / "peers.json")
        if given.write:
            check(results.records, "nothing was measured yet", results=str(results.path))
        else:
            if "race" in given.only:
                check_data([RACES[name] for name in given.races], given.data_dir)
            given.folder.mkdir(parents=True, exist_ok=True)
            with locked(given.folder, f"another run measures in {given.folder}"):
                run(given, results)
        written = write(given.docs, results)
    print(f"Written: {', '.join(map(str, written))}   Measurements: {results.path}")


def write(docs, results):
    """Writes what was measured to the pages; returns their paths."""
    page = docs / "results" / "peers.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    write_text(page, page_of(results, parts(PARTS)))
    return [page, *write_comparison(docs, results.of("losses"))]


def parts(names):
    return [importlib.import_module(f"benchmarks.peers.parts.{name}") for name in names]


def run(given, results):
    """Measures every case of the chosen parts that was not measured."""
    results.drop_failures()
    for part in parts(given.only):
        next(part.cases(given, results), None)  # makes the inputs, before hours of measuring
    peers = python_of_peers(given.folder)
    for part in parts(given.only):
        # Again, as what a part measured may lead to further cases.
        while todo := [each for each in part.cases(given, results) if not results.has(each)]:
            for case in progress(part.PART, todo, unit="case"):
                pythons = dict.fromkeys(case.sides, peers) | dict.fromkeys(OWN, sys.executable)
                results.add(case, measure(case, pythons, given.folder))


if __name__ == "__main__":
    main()
