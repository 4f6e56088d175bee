"""Trains every loss with nothing but defaults, and compares with the untrained network.

    python recipes/first_run.py --jobs 2
    python recipes/first_run.py --sets cub200 cars196 --cub200 PATH --cars196 PATH --weights FILE

Photographs (`cub200`, `cars196`) train with random and with pretrained weights, at 64 pixels.
Runs that are complete are not repeated, and one that was stopped goes on. Writes
runs/first_run.md: Recall@1 of unseen classes in percent, mean over the seeds.
"""

import argparse
import itertools
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from run import call, is_trained
from scores import RUNS, path_of, written_at
from tqdm import tqdm

from tfdml.command_line import one_sentence
from tfdml.losses import LOSSES

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
    work = {
        run_of(column, loss, seed): flags_of(column, loss, seed, folders, given.weights)
        for seed, column, loss in itertools.product(given.seeds, columns, given.losses)
    }
    os.environ["TF_NUM_INTRAOP_THREADS"] = str(max(1, (os.cpu_count() or 1) // given.jobs))
    with one_sentence(PROGRAM, RuntimeError), ThreadPoolExecutor(given.jobs) as pool:
        for _ in tqdm(pool.map(train, work, work.values()), "Runs", len(work), disable=None):
            write(columns, given)
    print((RUNS / "first_run.md").read_text())


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
    given = parser.parse_args()
    for name in PHOTOGRAPHS:
        if name in given.sets and not getattr(given, name):
            parser.error(f"--sets {name} needs --{name} PATH")
    return given


def run_of(column, loss, seed):
    return "_".join(["first", *map(str, column), loss, str(seed)])


def flags_of(column, loss, seed, folders, weights):
    name, start, steps = column
    flags = ["--loss", loss, *OPTIONS.get(loss, []), "--steps", steps, "--seed", seed]
    flags += ["--dataset", PHOTOGRAPHS.get(name, name)]
    if name in PHOTOGRAPHS:
        flags += ["--data_dir", folders[name], "--image_size", 64]
    if start == "pretrained":
        flags += ["--backbone", "mobilenet_v2", "--weights", weights]
    return flags


def train(run, flags):
    if not is_trained(run):
        resume = ["--resume"] if (RUNS / run).exists() else []
        call(run, "train.py", *flags, "--run", run, *resume)


def write(columns, given):
    """The table of the runs that are complete; those that ended below their start are bold."""
    heads = [f"{name}, {start}, {steps}" for name, start, steps in columns]
    lines = [f"| {' | '.join(['loss', *heads])} |", "|---" * (1 + len(heads)) + "|"]
    for loss in given.losses:
        cells = []
        for column in columns:
            runs = [run_of(column, loss, seed) for seed in given.seeds]
            cells.append(
                cell([written_at(path_of(run, "scores")) for run in runs if is_trained(run)])
            )
        lines.append(f"| {loss} | {' | '.join(cells)} |")
    (RUNS / "first_run.md").write_text("\n".join(lines) + "\n")


def cell(results):
    if not results:
        return "–"
    before, after = (
        np.mean([100 * scores[stage]["recall@1"] for scores in results])
        for stage in ("untrained", "trained")
    )
    text = f"{before:.1f} → {after:.1f}"
    return text if after > before else f"**{text}**"


if __name__ == "__main__":
    main()
