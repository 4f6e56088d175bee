"""Trains every loss with nothing but defaults, and compares with the untrained network.

    python recipes/first_run.py --jobs 2
    python recipes/first_run.py --sets cub200 cars196 --cub200 PATH --cars196 PATH --weights FILE

Photographs (`cub200`, `cars196`) train with random weights at 32 pixels and with pretrained weights
at 64. The scores are those of `train.py` with the same flags, but each of --jobs reads the images
of a set once for all losses and keeps them in memory, 3 GB for 500 steps at 64 pixels, and no model
is written. Runs in --scores with the same settings are not repeated; after a default has changed,
delete its rows. Writes runs/first_run.md: Recall@1 of unseen classes in percent, mean over the
seeds.
"""

import argparse
import contextlib
import functools
import io
import itertools
import multiprocessing
import pathlib
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import scores
from run import complete, terminating_children
from scores import BY_DISTANCE, RECALL_AT_1, RUNS, UNTRAINED

from tfdml.checks import check, check_keras
from tfdml.command_line import one_sentence
from tfdml.losses import LOSSES
from tfdml.programs import train
from tfdml.quiet import import_tensorflow, keep_printing

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
NAMES = sorted({*LOSSES} - {"weighted_sum"})  # which is of others
IMPOSSIBLE = [("digits", "sampled_classes")]  # a batch has all classes, so none can be left out
PHOTOGRAPHS = {"cub200": "cub200", "cars196": "folder"}  # --dataset of each
SMALL = ("digits", "glyphs")
SIDES = {"random": 32, "pretrained": 64}  # of photographs in pixels, by the start
KEPT = {}  # by `in_memory`


def main():
    keep_printing()
    given = parse()
    columns = columns_of(given)
    with one_sentence(PROGRAM, ValueError, OSError):
        check_keras()
        rows = scores.read(given.scores)
    known = {(row["recipe"], row["seed"], row["settings"]) for row in rows}
    todo = []  # runs on the same images follow each other
    for seed, column, loss in itertools.product(given.seeds, columns, given.losses):
        if (column[0], loss) in IMPOSSIBLE:
            continue
        flags = flags_of(column, loss, seed, given)
        keys = {"recipe": recipe_of(column, loss), "seed": seed, "settings": digest_of(flags)}
        if tuple(keys.values()) not in known:
            todo.append((keys, flags))
    pool = None
    if given.jobs > 1:
        spawned = multiprocessing.get_context("spawn")
        pool = functools.partial(ProcessPoolExecutor, mp_context=spawned)
    work = functools.partial(row_of, most_steps=max(given.steps))
    with one_sentence(PROGRAM, RuntimeError, ValueError, OSError), terminating_children():
        if todo:
            check_paths(given)
        rows = complete(work, todo, given.jobs, given.scores, pool)
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
        choices=[*SIDES],
        default=[*SIDES],
        help="of the networks of photographs; default: random pretrained",
    )
    parser.add_argument(
        "--losses",
        nargs="+",
        choices=NAMES,
        default=NAMES,
        metavar="LOSS",
        help="default: all",
    )
    parser.add_argument("--steps", type=int, nargs="+", default=[100, 500], help="default: 100 500")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1], help="default: 0 1")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once; default: 1")
    parser.add_argument(
        "--scores",
        type=scores.given_path,
        default=RUNS / "first_run.csv",
        help="CSV file of all scores, read and written; runs in it, such as those of another "
        "machine, are not repeated; default: runs/first_run.csv",
    )
    given = parser.parse_args()
    for name in ("jobs", "steps"):
        least = np.min(getattr(given, name))
        if least < 1:
            parser.error(f"--{name} must be >= 1. Received: {least}")
    for name in PHOTOGRAPHS:
        if name in given.sets and not getattr(given, name):
            parser.error(f"--sets {name} needs --{name} PATH")
    return given


def check_paths(given):
    """Raises a ValueError for a path that does not exist, before hours of other runs."""
    for name in set(PHOTOGRAPHS).intersection(given.sets):
        folder = getattr(given, name)
        exists = pathlib.Path(folder).expanduser().is_dir()
        check(exists, f"--{name} must be a folder", **{name: folder})
    exists = given.weights == "imagenet" or pathlib.Path(given.weights).expanduser().is_file()
    check(exists, "--weights must be imagenet or a file", weights=given.weights)


def columns_of(given):
    """(name of a set, start of the network, steps) of each column of the table."""
    return [
        (name, start, steps)
        for name in given.sets
        for start in given.starts
        if start == "random" or name in PHOTOGRAPHS
        for steps in given.steps
    ]


def recipe_of(column, loss):
    return "_".join([*map(str, column), loss])


def flags_of(column, loss, seed, given):
    name, start, steps = column
    flags = ["--loss", loss, *OPTIONS.get(loss, []), "--steps", steps, "--seed", seed]
    flags += ["--dataset", PHOTOGRAPHS.get(name, name)]
    if name in PHOTOGRAPHS:
        flags += ["--data_dir", getattr(given, name), "--image_size", SIDES[start]]
    if start == "pretrained":
        flags += ["--backbone", "mobilenet_v2", "--weights", given.weights]
    return [*map(str, flags)]


def digest_of(flags):
    return scores.digest(train.recipe_of(flags), None)


def row_of(run, most_steps):
    """Trains a run; returns its row, as a list of one."""
    import_tensorflow()
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")  # each run traces its functions anew, of which it warns
    keys, flags = run
    errors = (ValueError, TypeError, OSError, FloatingPointError, tf.errors.OpError)
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            recalls = recalls_of(*train.parse(flags), most_steps)
        except errors as error:
            raise RuntimeError(f"{keys['recipe']}, seed {keys['seed']}: {error}") from None
    return [{**keys, "classes": "test", "ranked_by": BY_DISTANCE, **recalls}]


def recalls_of(recipe, _, devices, most_steps):
    """Recall@1 of the unseen classes before and after training."""
    import keras

    from tfdml.runs import outcome

    keras.utils.clear_session()
    names = ("dataset", "data_dir", "image_size", "seed")
    settings = {name: getattr(recipe, name) for name in names}
    images, to_train, to_score, untrained = in_memory(most_steps, **settings)
    recipe, _ = recipe.completed(images.train.num_classes)
    model = train.build_model(recipe, images.train, images.dataset)

    def recall():
        embeddings = model.embedder.predict(to_score, verbose=0)
        return outcome.score(embeddings, images, model)[RECALL_AT_1]

    start = model.embedder.predict(to_score.take(1), verbose=0).tobytes()
    if start not in untrained:
        untrained[start] = recall()
    train.train(recipe, model, to_train, devices, train.stops(recipe))
    return {UNTRAINED: untrained[start], RECALL_AT_1: recall()}


def in_memory(steps, **settings):
    """The `Images` of a run, its first batches to train on, the batches to score, and a dict.

    Those of the last call stay in memory. The dict is for Recall@1 of untrained networks, by the
    embeddings of the first batch to score: many losses start with the same network.

    Args:
        steps: Number of batches to train on.
        **settings: Those of the `Recipe` that images depend on.
    """
    from tfdml.runs.images import images_to_score, load_images, training_batches
    from tfdml.runs.recipe import Recipe

    key = (steps, *settings.values())
    if key not in KEPT:
        KEPT.clear()  # before others are read
        recipe = Recipe(**settings)
        images = load_images(recipe)
        recipe, _ = recipe.completed(images.train.num_classes)
        to_train, _ = training_batches(recipe, 0, images.train, images.dataset)
        to_score = images_to_score(images.test, images.dataset)
        cached = to_train.take(steps).cache(), to_score.cache()
        for batches in cached:
            for _ in batches:
                pass
        KEPT[key] = images, *cached, {}
    return KEPT[key]


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
