"""Reruns a table: every recipe of a folder with every seed, then mean and deviation.

    python recipes/run.py recipes/pddm/omniglot -- --data_dir PATH
    python recipes/run.py recipes/pddm/omniglot --seeds 0 1 --jobs 2 -- --data_dir PATH --steps 200

What stands behind `--` goes to `train.py` of every run. Runs that are complete are not repeated,
and one that was stopped goes on. Writes table.md and curves.png to runs/pddm_omniglot/, named
after the folder of the recipes.
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
SCORES = ("recall@1", "recall@2", "recall@4", "recall@8")
BY_DISTANCE, BY_SIMILARITY = "distance", "similarity"


def main():
    arguments, settings = parse()
    recipes = sorted(arguments.folder.glob("*.yaml"))
    if not recipes:
        sys.exit(f"error: no *.yaml in {arguments.folder}")
    table = "_".join(arguments.folder.parts[-2:])
    work = [(recipe, seed) for recipe in recipes for seed in arguments.seeds]
    threads = max(1, (os.cpu_count() or 1) // arguments.jobs)
    os.environ["TF_NUM_INTRAOP_THREADS"] = str(threads)

    def train_one(recipe, seed):
        train(recipe, seed, f"{table}_{recipe.stem}_{seed}", settings)

    with ThreadPoolExecutor(arguments.jobs) as pool:
        for _ in tqdm(pool.map(train_one, *zip(*work, strict=True)), "Runs", len(work)):
            pass
    folder = pathlib.Path("runs") / table
    folder.mkdir(exist_ok=True)
    names = {
        recipe.stem: [f"{table}_{recipe.stem}_{seed}" for seed in arguments.seeds]
        for recipe in recipes
    }
    text = table_of(names)
    (folder / "table.md").write_text(text)
    plot_curves(names, folder / "curves.png")
    print(f"\n{text}\nTable: {folder / 'table.md'}   Curves: {folder / 'curves.png'}")


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=pathlib.Path, help="folder of recipes, *.yaml")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="default: 0 1 2")
    parser.add_argument(
        "--jobs", type=int, default=1, help="runs at once, which share the cores; default: 1"
    )
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    return parser.parse_args(sys.argv[1:split]), sys.argv[split + 1 :]


def train(recipe, seed, run, settings):
    """Trains, or goes on, and scores by what was learned, where there is such a thing."""
    flags = ["--config", recipe, *settings, "--seed", seed, "--run", run]
    if not (pathlib.Path("saved_models") / run / "1").exists():
        stopped = (pathlib.Path("runs") / run).exists()
        call(run, "train.py", *(["--run", run, "--resume"] if stopped else flags))
    config = (pathlib.Path("runs") / run / "config.yaml").read_text()
    learns = any(f"loss: {loss}\n" in config for loss in ("pddm", "pddm_triplet", "lmdm"))
    if learns and not scores_path(run, BY_SIMILARITY).exists():
        call(
            run,
            "evaluate.py",
            *(f"saved_models/{run}", "--rank_by", "similarity", "--nmi", "false"),
            *("--out", scores_path(run, BY_SIMILARITY)),
        )


def call(run, script, *arguments):
    log = pathlib.Path("runs") / f"{run}.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("w") as file:
        command = [sys.executable, str(ROOT / script), *map(str, arguments)]
        code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT).returncode
    if code:
        sys.exit(f"error: {' '.join(command)} failed with {code}:\n{log.read_text()[-2000:]}")
    log.unlink()


def scores_path(run, rank_by):
    return pathlib.Path("runs") / run / f"{rank_by}.json"


def scores_of(run, rank_by):
    """What stands in a line of the table, in percent and in seconds."""
    training = json.loads((pathlib.Path("runs") / run / "scores.json").read_text())
    scores = training["trained"]
    if rank_by == BY_SIMILARITY:
        scores = json.loads(scores_path(run, rank_by).read_text())["scores"]
    recalls = [training["untrained"][SCORES[0]], *(scores[name] for name in SCORES)]
    return [*(100 * recall for recall in recalls), training["train_seconds"]]


def table_of(names):
    """Markdown: a line per recipe and ranking, mean ± deviation over the seeds, in percent."""
    lines = [
        f"| recipe | ranked by | untrained {SCORES[0]} | {' | '.join(SCORES)} | seconds | runs |",
        f"|---|---|{'---|' * (len(SCORES) + 3)}",
    ]
    for recipe, runs in names.items():
        for rank_by in (BY_DISTANCE, BY_SIMILARITY):
            if rank_by == BY_SIMILARITY and not scores_path(runs[0], rank_by).exists():
                continue
            values = np.array([scores_of(run, rank_by) for run in runs])
            deviations = values.std(axis=0, ddof=1) if len(runs) > 1 else 0 * values[0]
            *recalls, seconds = zip(values.mean(axis=0), deviations, strict=True)
            cells = [f"{mean:.1f} ± {deviation:.1f}" for mean, deviation in recalls]
            cells += [f"{seconds[0]:.0f}", str(len(runs))]
            lines.append(f"| {recipe} | {rank_by} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def plot_curves(names, path):
    """The loss of every recipe, as a share of its first value, over the intervals of the log."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for recipe, runs in names.items():
        losses = []
        for run in runs:
            with (pathlib.Path("runs") / run / "logs" / "epochs.csv").open(newline="") as file:
                losses.append([float(row["loss"]) for row in csv.DictReader(file)])
        mean = np.mean(losses, axis=0)
        axes.plot(np.arange(1, len(mean) + 1), mean / mean[0], label=recipe)
    axes.set(
        title="Training loss, mean over the seeds",
        xlabel="checkpoint interval",
        ylabel="loss / loss of the first interval",
    )
    axes.legend()
    figure.savefig(path)


if __name__ == "__main__":
    main()
