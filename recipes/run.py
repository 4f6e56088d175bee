"""Reruns a table: every recipe of a folder with every seed, then mean and deviation.

    python recipes/run.py recipes/pddm/omniglot -- --data_dir PATH
    python recipes/run.py recipes/pddm/omniglot --seeds 0 1 --jobs 2 -- --data_dir PATH --steps 200

`--nmi` and `--train_classes` add NMI and F1, and Recall@1 of the classes that were trained on.
What stands behind `--` goes to `train.py` of every run. Runs that are complete are not repeated,
and one that was stopped goes on. Runs of other settings are rejected. So are scores of other
settings, unless their run is here: then it is scored again. Scores say whether files such as
--weights were given, not which. Writes table.md, scores.csv and curves.png to runs/pddm_omniglot/,
named after the folder of the recipes.
"""

import argparse
import contextlib
import itertools
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import yaml
from tqdm import tqdm

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import scores  # noqa: E402
from scores import BY_DISTANCE, BY_SIMILARITY, NMI, TRAIN_CLASSES  # noqa: E402

from tfdml.command_line import fail, one_sentence  # noqa: E402
from tfdml.files import read_text  # noqa: E402
from tfdml.programs import train  # noqa: E402, what reads its flags
from tfdml.quiet import keep_printing  # noqa: E402
from tfdml.runs.folders import RUNS, SAVED_MODELS  # noqa: E402

PROGRAM = "run.py"
OWN_FLAGS = ("--config", "--seed", "--run", "--resume", "--help", "-h")
CHILDREN = set()  # processes of `call`
TERMINATED = threading.Event()


def main():
    keep_printing()
    arguments, settings = parse()
    recipes = sorted(arguments.folder.glob("*.yaml"))
    if not recipes:
        fail(PROGRAM, f"no recipes, *.yaml, in {arguments.folder}")
    table = "_".join(arguments.folder.resolve().parts[-2:])
    path = arguments.scores or RUNS / table / "scores.csv"
    runs = {
        each.stem: [f"{table}_{each.stem}_{seed}" for seed in arguments.seeds] for each in recipes
    }
    with one_sentence(PROGRAM, RuntimeError, ValueError, OSError), terminating_children():
        todo = runs_to_do(recipes, runs, scores.read(path), arguments, settings)
        rows = complete(
            lambda run: train_and_score(run, *todo[run], arguments), todo, arguments.jobs, path
        )
    folder = RUNS / table
    folder.mkdir(parents=True, exist_ok=True)
    shown = [
        row
        for recipe in recipes
        for row in rows
        if row["recipe"] == recipe.stem and row["seed"] in arguments.seeds
    ]
    text = scores.table_of(shown, arguments.k)
    (folder / "table.md").write_text(text, encoding="utf-8")
    scores.plot_curves(runs, folder / "curves.png")
    print(f"\n{text}\nTable: {folder / 'table.md'}   Curves: {folder / 'curves.png'}")


@contextlib.contextmanager
def terminating_children():
    """SIGTERM within the block also ends the programs that were started."""

    def stop(number, _):
        TERMINATED.set()
        for child in [*CHILDREN, *multiprocessing.active_children()]:
            child.terminate()
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def runs_to_do(recipes, runs, rows, arguments, settings):
    """{name of a run: the keys of its rows and the flags of `train.py`}, of those not complete."""
    given = arguments.level_weights
    parsed = {path: train.recipe_of(["--config", str(path), *settings]) for path in recipes}
    levels = sorted({scores.levels_of(each) for each in parsed.values()})
    if given and len(given) not in levels:
        raise ValueError(
            f"--level_weights must be as many as a recipe has levels, {levels}. Received: {given}"
        )
    todo = {}
    for recipe in recipes:
        settings_digest = scores.digest(parsed[recipe], given)
        for seed, run in zip(arguments.seeds, runs[recipe.stem], strict=True):
            keys = {"recipe": recipe.stem, "seed": seed, "settings": settings_digest}
            of_run = [row for row in rows if same_run(row, keys)]
            is_other = any(row["settings"] != settings_digest for row in of_run)
            if is_other and not (RUNS / run).exists():
                raise ValueError(
                    f"the scores of {recipe.stem} with seed {seed} are of other settings. Give "
                    "those, delete its rows, or choose another --scores"
                )
            if is_trained(run) or is_other or not is_scored(of_run, arguments):
                todo[run] = keys, flags_of(recipe, seed, run, settings)
    return todo


def complete(rows_of_run, todo, jobs, path, pool=None):
    """The rows at `path` and those of every run in `todo`, `jobs` at once, written as they come.

    `pool(jobs)` is the executor that runs them; None for one of threads. After a failure no other
    run begins, and those that run end first.
    """
    threads = max(1, (os.cpu_count() or 1) // jobs)
    os.environ["TF_NUM_INTRAOP_THREADS"] = str(threads)
    path.parent.mkdir(parents=True, exist_ok=True)
    waiting, running, failures = iter(todo), set(), []
    bar = tqdm(desc="Runs", total=len(todo), disable=None)
    with (pool or ThreadPoolExecutor)(jobs) as workers, bar:
        while True:
            if not failures:
                free = itertools.islice(waiting, jobs - len(running))
                running |= {workers.submit(rows_of_run, run) for run in free}
            if not running:
                break
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                if failure := future.exception():
                    failures.append(failure)
                    if running or len(failures) > 1:
                        bar.write(f"{failure}. Others end first: {len(running)}", sys.stderr)
                    continue
                new = future.result()
                kept = [row for row in scores.read(path) if not same_run(row, new[0])]
                scores.write(path, kept + new)
                bar.update()
    if failures:
        raise failures[0]
    return scores.read(path)


def parse():
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=pathlib.Path, help="folder of recipes, *.yaml")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="default: 0 1 2")
    parser.add_argument(
        "--jobs", type=int, default=1, help="runs at once, which share the cores; default: 1"
    )
    parser.add_argument("--k", type=int, nargs="+", default=[1, 2, 4, 8], help="of Recall@K")
    parser.add_argument("--nmi", action="store_true", help="also cluster by k-means")
    parser.add_argument(
        "--level_weights",
        type=float,
        nargs="+",
        help="of the ensemble of each recipe with as many levels; those of others are 1",
    )
    parser.add_argument(
        "--train_classes", action="store_true", help="also score the classes that were trained on"
    )
    parser.add_argument(
        "--scores",
        type=scores.given_path,
        help="CSV file of all scores, read and written; runs in it, such as those of another "
        "machine, are not repeated; default: scores.csv beside the table",
    )
    own, settings = train.split_at_dashes(parser, sys.argv[1:], OWN_FLAGS)
    arguments, unknown = parser.parse_known_args(own)
    if unknown:
        words = " ".join(unknown)
        parser.error(f"unrecognized arguments: {words}. Flags of train.py stand behind --")
    if arguments.jobs < 1:
        parser.error(f"--jobs must be >= 1. Received: {arguments.jobs}")
    for name in ("seeds", "k"):
        values = getattr(arguments, name)
        if len(set(values)) < len(values):
            parser.error(f"--{name} must differ. Received: {values}")
    if min(arguments.k) < 1:
        parser.error(f"--k must be >= 1. Received: {arguments.k}")
    weights = arguments.level_weights or [1]
    if min(weights) < 0 or max(weights) == 0:
        parser.error(f"--level_weights must be >= 0, one of them above. Received: {weights}")
    if arguments.scores and arguments.scores.is_dir():
        parser.error(f"--scores must be a file. Received: the folder {arguments.scores}")
    return arguments, settings


def flags_of(recipe, seed, run, settings):
    """The flags of `train.py` for one run, checked; those to go on with a run that exists."""
    flags = ["--config", str(recipe), *settings, "--seed", str(seed), "--run", run]
    flags += ["--resume"] if (RUNS / run).exists() else []
    asked, resumes, _ = train.parse(flags)
    if resumes:
        config = yaml.safe_load(read_text(RUNS / run / "config.yaml"))
        if config["steps"] != asked.steps:  # `train.py` would train a finished run further
            raise ValueError(
                f"run {run} has {config['steps']} steps, not {asked.steps}: give as many, or "
                f"delete {RUNS / run}, {SAVED_MODELS / run} and its rows of --scores"
            )
    return flags


def is_trained(run):
    return (SAVED_MODELS / run / "1").exists()


def is_scored(rows, arguments):
    """Whether the rows of a run have all that is asked for."""
    asked = [*scores.recalls(arguments.k), *[NMI] * arguments.nmi]
    asked += [TRAIN_CLASSES] * arguments.train_classes
    return any(row["ranked_by"] == BY_DISTANCE and set(asked) <= set(row) for row in rows)


def same_run(row, other):
    return (row["recipe"], row["seed"]) == (other["recipe"], other["seed"])


def train_and_score(run, keys, flags, arguments):
    """Trains, or goes on, and scores by distance and by what was learned, where there is such."""
    if not is_trained(run):
        call(run, "train.py", *flags)
    results = scores.written_at(scores.path_of(run, "scores"))
    levels, learned = results["levels"], results["learns_similarity"]
    for rank_by in (BY_DISTANCE, *[BY_SIMILARITY] * learned):
        options = {"rank_by": rank_by, "k": arguments.k}
        if levels > 1 and rank_by == BY_DISTANCE:
            options["level_weights"] = level_weights(arguments.level_weights, levels)
        evaluate(run, rank_by, arguments.nmi and rank_by == BY_DISTANCE, options)
        if arguments.train_classes and rank_by == BY_DISTANCE:
            evaluate(run, TRAIN_CLASSES, False, {**options, "split": "train"})
    return scores.rows_of(run, **keys)


def evaluate(run, kind, nmi, options):
    """Runs `evaluate.py`, unless the scores that it wrote before are of the same options.

    Args:
        run: Name of the run.
        kind: Name of the scores file, without `.json`.
        nmi: Whether to cluster as well.
        options: {name: value} of further flags.
    """
    path = scores.path_of(run, kind)
    written = scores.written_at(path)
    if written | options != written or (nmi and not written["nmi"]):
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        words += ["--nmi", str(nmi).lower(), "--out", path]
        call(run, "evaluate.py", SAVED_MODELS / run, *words)


def level_weights(given, levels):
    """Those given for so many levels; without them each level has unit length."""
    return given if given and len(given) == levels else [1] * levels


def call(run, script, *arguments):
    RUNS.mkdir(exist_ok=True)
    log = RUNS / f"{run}.log"
    with log.open("w", encoding="utf-8") as file:
        command = [sys.executable, str(ROOT / script), *map(str, arguments)]
        child = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        CHILDREN.add(child)
        if TERMINATED.is_set():  # by another thread, while this one began
            child.terminate()
        code = child.wait()
        CHILDREN.remove(child)
    if code:
        last = log.read_text("utf-8", errors="replace").strip().splitlines()[-1:]
        raise RuntimeError(f"{script} of {run} ended with {code}: {' '.join(last)} (see {log})")
    log.unlink()


if __name__ == "__main__":
    main()
