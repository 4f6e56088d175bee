"""Trains every loss with nothing but defaults, and compares with the untrained network.

    python recipes/first_run.py --jobs 2
    python recipes/first_run.py --sets cub200 cars196 --cub200 PATH --cars196 PATH --weights FILE

Photographs (`cub200`, `cars196`) train with random and with pretrained weights, at 64 pixels.
Runs that are complete are not repeated, and one that was stopped goes on; after a default has
changed, delete its rows of --scores and its runs. Writes runs/first_run.md: Recall@1 of unseen
classes in percent, mean over the seeds.
"""

import argparse
import itertools
import pathlib

import numpy as np
import scores
from run import call, complete, is_trained
from scores import BY_DISTANCE, RECALL_AT_1, RUNS, UNTRAINED

from tfdml.command_line import one_sentence
from tfdml.losses import LOSSES
from tfdml.programs.train import parser_of_recipes

PROGRAM = "first_run.py"
OPTIONS = {
    "matryoshka": ["--loss_options.base", "npair", "--loss_options.dims", "[128, 64, 32]"],
    "memory": [
        *("--loss_options.base", "multi_similarity", "--loss_options.size", "1024"),
        *("--loss_options.start_step", "20"),
    ],
    "sampled_classes": ["--loss_options.base", "cosface", "--loss_options.rate", "0.5"],
    "regularized": ["--loss_options.base", "npair", "--loss_options.regularizer", "gor"],
}
PHOTOGRAPHS = {"cub200": "cub200", "cars196": "folder"}  # --dataset of each
SMALL = ("digits", "glyphs")
STARTS = ("random", "pretrained")


def main():
    given = parse()
    folders = {"cub200": given.cub200, "cars196": given.cars196}
    columns = [
        (name, start, steps)
        for name in given.sets
        for start in given.starts
        if start == "random" or name in PHOTOGRAPHS
        for steps in given.steps
    ]
    rows = scores.read(given.scores)
    known = {(row["recipe"], row["seed"]) for row in rows}
    todo = [
        (column, loss, seed)
        for seed, column, loss in itertools.product(given.seeds, columns, given.losses)
        if (recipe_of(column, loss), seed) not in known
    ]
    with one_sentence(PROGRAM, RuntimeError):
        rows = complete(
            lambda run: [train(*run, folders, given.weights)], todo, given.jobs, rows, given.scores
        )
    text = table_of(rows, columns, given)
    RUNS.mkdir(exist_ok=True)
    (RUNS / "first_run.md").write_text(text, encoding="utf-8")
    print(text)


def parse():
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [*SMALL, *PHOTOGRAPHS]
    parser.add_argument(
        "--sets", nargs="+", choices=names, default=SMALL, help="of images; default: digits glyphs"
    )
    parser.add_argument("--cub200", help="folder of CUB-200-2011")
    parser.add_argument("--cars196", help="folder with a sub-folder for each class of Cars196")
    parser.add_argument("--weights", default="imagenet", help="of MobileNetV2; default: imagenet")
    parser.add_argument(
        "--starts",
        nargs="+",
        choices=STARTS,
        default=STARTS,
        help="of the networks of photographs; default: random pretrained",
    )
    parser.add_argument(
        "--losses",
        nargs="+",
        choices=sorted(LOSSES),
        default=sorted(LOSSES),
        metavar="LOSS",
        help="default: all",
    )
    parser.add_argument("--steps", type=int, nargs="+", default=[100, 500], help="default: 100 500")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1], help="default: 0 1")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once; default: 1")
    parser.add_argument(
        "--scores",
        type=pathlib.Path,
        default=RUNS / "first_run.csv",
        help="CSV file of all scores, read and written; runs in it, such as those of another "
        "machine, are not repeated; default: runs/first_run.csv",
    )
    given = parser.parse_args()
    for name in PHOTOGRAPHS:
        if name in given.sets and not getattr(given, name):
            parser.error(f"--sets {name} needs --{name} PATH")
    return given


def recipe_of(column, loss):
    return "_".join([*map(str, column), loss])


def flags_of(column, loss, seed, folders, weights):
    name, start, steps = column
    flags = ["--loss", loss, *OPTIONS.get(loss, []), "--steps", steps, "--seed", seed]
    flags += ["--dataset", PHOTOGRAPHS.get(name, name)]
    if name in PHOTOGRAPHS:
        flags += ["--data_dir", folders[name], "--image_size", 64]
    if start == "pretrained":
        flags += ["--backbone", "mobilenet_v2", "--weights", weights]
    return flags


def train(column, loss, seed, folders, weights):
    """The row of a run, which is trained, or goes on, unless it is complete."""
    recipe = recipe_of(column, loss)
    run = f"first_{recipe}_{seed}"
    flags = flags_of(column, loss, seed, folders, weights)
    if not is_trained(run):
        resume = ["--resume"] if (RUNS / run).exists() else []
        call(run, "train.py", *flags, "--run", run, *resume)
    results = scores.written_at(scores.path_of(run, "scores"))
    return {
        "recipe": recipe,
        "seed": seed,
        "settings": digest_of(flags),
        "classes": results["scored_classes"],
        "ranked_by": BY_DISTANCE,
        UNTRAINED: results[UNTRAINED][RECALL_AT_1],
        RECALL_AT_1: results["trained"][RECALL_AT_1],
    }


def digest_of(flags):
    parser = parser_of_recipes()
    given = parser.parse_args([*map(str, flags)])
    return scores.digest(parser.settings_of(given), None)


def table_of(rows, columns, given):
    """Markdown: a line per loss; bold where training did not improve on the start."""
    heads = [f"{name}, {start}, {steps}" for name, start, steps in columns]
    lines = [f"| {' | '.join(['loss', *heads])} |", "|---" * (1 + len(heads)) + "|"]
    for loss in given.losses:
        recipes = [recipe_of(column, loss) for column in columns]
        cells = [
            cell([r for r in rows if r["recipe"] == recipe and r["seed"] in given.seeds])
            for recipe in recipes
        ]
        lines.append(f"| {loss} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def cell(rows):
    if not rows:
        return "–"
    before, after = (
        100 * np.mean([row[name] for row in rows]) for name in (UNTRAINED, RECALL_AT_1)
    )
    text = f"{before:.1f} → {after:.1f}"
    return text if after > before else f"**{text}**"


if __name__ == "__main__":
    main()
