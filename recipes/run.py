"""Reruns a table: every recipe of a folder with every seed, then mean and deviation.

    python recipes/run.py recipes/pddm/omniglot -- --data_dir PATH
    python recipes/run.py recipes/pddm/omniglot --seeds 0 1 --jobs 2 -- --data_dir PATH --steps 200

`--nmi` and `--train_classes` add NMI and F1, and Recall@1 of the classes that were trained on.
What stands behind `--` goes to `train.py` of every run. Runs that are complete are not repeated,
and one that was stopped goes on; one of other settings is rejected. Writes table.md and curves.png
to runs/pddm_omniglot/, named after the folder of the recipes.
"""

import argparse
import csv
import json
import os
import pathlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from tqdm import tqdm

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tfdml.command_line import fail, one_sentence  # noqa: E402
from tfdml.programs import train  # noqa: E402, what reads its flags

PROGRAM = "run.py"
RUNS, SAVED_MODELS = pathlib.Path("runs"), pathlib.Path("saved_models")
DISTANCES = {  # name in evaluation -> head of the column
    "positive_mean": "mean +",
    "positive_variance": "variance +",
    "negative_mean": "mean −",
    "negative_variance": "variance −",
    "lda": "LDA",
}
BY_DISTANCE, BY_SIMILARITY = "distance", "similarity"
RECALL_AT_1, NMI, F1, TRAIN_CLASSES = "recall@1", "nmi", "f1", "train_classes"
OWN_FLAGS = ("--config", "--seed", "--run", "--resume", "--help", "-h")


def main():
    arguments, settings = parse()
    recipes = sorted(arguments.folder.glob("*.yaml"))
    if not recipes:
        fail(PROGRAM, f"no recipes, *.yaml, in {arguments.folder}")
    table = "_".join(arguments.folder.resolve().parts[-2:])
    names = {
        recipe: [f"{table}_{recipe.stem}_{seed}" for seed in arguments.seeds] for recipe in recipes
    }
    work = {
        run: flags_of(recipe, seed, run, settings)
        for recipe, runs in names.items()
        for seed, run in zip(arguments.seeds, runs, strict=True)
    }
    threads = max(1, (os.cpu_count() or 1) // arguments.jobs)
    os.environ["TF_NUM_INTRAOP_THREADS"] = str(threads)
    with one_sentence(PROGRAM, RuntimeError), ThreadPoolExecutor(arguments.jobs) as pool:
        scored = pool.map(lambda run: train_and_score(run, work[run], arguments), work)
        for _ in tqdm(scored, "Runs", len(work)):
            pass
    folder = RUNS / table
    folder.mkdir(exist_ok=True)
    text = table_of(names, arguments.k)
    (folder / "table.md").write_text(text)
    plot_curves(names, folder / "curves.png")
    print(f"\n{text}\nTable: {folder / 'table.md'}   Curves: {folder / 'curves.png'}")


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
        "--level_weights", type=float, nargs="+", help="of an ensemble of as many levels; else 1"
    )
    parser.add_argument(
        "--train_classes", action="store_true", help="also score the classes that were trained on"
    )
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    arguments, settings = parser.parse_args(sys.argv[1:split]), sys.argv[split + 1 :]
    if arguments.jobs < 1:
        parser.error(f"--jobs must be >= 1. Received: {arguments.jobs}")
    for name in ("seeds", "k"):
        values = getattr(arguments, name)
        if len(set(values)) < len(values):
            parser.error(f"--{name} must differ. Received: {values}")
    if min(arguments.k) < 1:
        parser.error(f"--k must be >= 1. Received: {arguments.k}")
    for word in settings:
        if word.partition("=")[0] in OWN_FLAGS:
            parser.error(f"{word} cannot stand behind --: every run has its own")
    return arguments, settings


def flags_of(recipe, seed, run, settings):
    """The flags of `train.py` for one run, checked; those to go on with a run that exists."""
    flags = ["--config", str(recipe), *settings, "--seed", str(seed), "--run", run]
    flags += ["--resume"] if (RUNS / run).exists() else []
    train.parse(flags)
    return flags


def train_and_score(run, flags, arguments):
    """Trains, or goes on, and scores by distance and by what was learned, where there is such."""
    if not (SAVED_MODELS / run / "1").exists():
        call(run, "train.py", *flags)
    results = results_of(run)
    levels, learned = results["levels"], results["learns_similarity"]
    for rank_by in (BY_DISTANCE, *[BY_SIMILARITY] * learned):
        options = {"rank_by": rank_by, "k": arguments.k}
        if levels > 1 and rank_by == BY_DISTANCE:
            options["level_weights"] = level_weights(arguments.level_weights, levels)
        nmi = arguments.nmi and rank_by == BY_DISTANCE
        path = scores_path(run, rank_by)
        written = written_at(path)
        if written | options != written or (nmi and not written["nmi"]):
            words = [word for name, value in options.items() for word in (f"--{name}", value)]
            words += ["--nmi", str(nmi).lower(), "--out", path]
            call(run, "evaluate.py", SAVED_MODELS / run, *words)
    path = scores_path(run, TRAIN_CLASSES)
    if arguments.train_classes and not path.exists():
        options = ["--split", "train", "--nmi", "false", "--out", path]
        call(run, "evaluate.py", SAVED_MODELS / run, *options)


def recalls(ks):
    return [f"recall@{k}" for k in ks]


def level_weights(given, levels):
    """Those given for so many levels; without them each level has unit length."""
    return given if given and len(given) == levels else [1] * levels


def call(run, script, *arguments):
    RUNS.mkdir(exist_ok=True)
    log = RUNS / f"{run}.log"
    with log.open("w") as file:
        command = [sys.executable, str(ROOT / script), *map(str, arguments)]
        code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT).returncode
    if code:
        last = log.read_text().strip().splitlines()[-1:]
        raise RuntimeError(f"{script} of {run} ended with {code}: {' '.join(last)} (see {log})")
    log.unlink()


def results_of(run):
    return json.loads((RUNS / run / "scores.json").read_text())


def scores_path(run, kind):
    return RUNS / run / f"{kind}.json"


def written_at(path):
    """The scores that `evaluate.py` wrote, or an empty dict."""
    return json.loads(path.read_text()) if path.exists() else {}


def rows_of(run):
    """{what ranks: {name: value}}: each level of several, their distances, a learned similarity."""
    rows = {}
    for rank_by in (BY_DISTANCE, BY_SIMILARITY):
        if content := written_at(scores_path(run, rank_by)):
            rows |= content.get("levels", {}) if rank_by == BY_DISTANCE else {}
            rows[rank_by] = {**content["scores"], **content.get("distances", {})}
    if content := written_at(scores_path(run, TRAIN_CLASSES)):
        rows[BY_DISTANCE][TRAIN_CLASSES] = content["scores"][RECALL_AT_1]
    return rows


def numbers_of(results, scores, ranked_by, shown):
    """What stands in a line of the table; NaN for what is unknown."""
    whole = results["train_seconds_from_step"] == 0
    of_all = ranked_by in (BY_DISTANCE, BY_SIMILARITY)
    return [
        100 * results["untrained"][RECALL_AT_1] if of_all else np.nan,
        *(100 * scores.get(name, np.nan) for name in shown),
        *(scores.get(name, np.nan) for name in DISTANCES),
        results["train_seconds"] if whole and of_all else np.nan,
    ]


def table_of(names, ks):
    """Markdown: a line per recipe and ranking, mean ± deviation over the seeds, in percent."""
    results = {run: results_of(run) for runs in names.values() for run in runs}
    rows = {run: rows_of(run) for run in results}
    scored = {of_run["scored_classes"] for of_run in results.values()}
    shown = [*recalls(ks), NMI, F1, TRAIN_CLASSES]
    heads = ["recipe", "ranked by", f"untrained {RECALL_AT_1}", *recalls(ks), "NMI", "F1"]
    heads += [f"train {RECALL_AT_1}", *DISTANCES.values(), "seconds", "runs"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    digits = [1] * (1 + len(shown)) + [3] * len(DISTANCES)
    for recipe, runs in names.items():
        for ranked_by in rows[runs[0]]:
            given = ((results[run], rows[run][ranked_by]) for run in runs)
            values = np.array([numbers_of(*of_run, ranked_by, shown) for of_run in given])
            deviations = values.std(axis=0, ddof=1) if len(runs) > 1 else 0 * values[0]
            *scores, seconds = zip(values.mean(axis=0), deviations, strict=True)
            cells = [
                cell(f"{mean:.{places}f} ± {deviation:.{places}f}", mean)
                for (mean, deviation), places in zip(scores, digits, strict=True)
            ]
            cells += [cell(f"{seconds[0]:.0f}", seconds[0]), str(len(runs))]
            lines.append(f"| {recipe.stem} | {ranked_by} | {' | '.join(cells)} |")
    return f"Of the {' and '.join(sorted(scored))} classes.\n\n" + "\n".join(lines) + "\n"


def cell(text, number):
    return "–" if np.isnan(number) else text


def plot_curves(names, path):
    """The loss of every recipe, as a share of its first value, over the intervals of the log."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for recipe, runs in names.items():
        if "trained" not in results_of(runs[0]):
            continue  # a recipe of no steps
        losses = []
        for run in runs:
            with (RUNS / run / "logs" / "epochs.csv").open(newline="") as file:
                losses.append([float(row["loss"]) for row in csv.DictReader(file)])
        mean = np.mean(losses, axis=0)
        axes.plot(np.arange(1, len(mean) + 1), mean / mean[0], label=recipe.stem)
    axes.set(
        title="Training loss, mean over the seeds",
        xlabel="checkpoint interval",
        ylabel="loss / loss of the first interval",
    )
    axes.legend()
    figure.savefig(path)


if __name__ == "__main__":
    main()
