"""Trains losses on the features of a frozen backbone, where a thousand steps take seconds.

    python recipes/frozen_features.py recipes/pddm/cub200_frozen --seeds 0 1 \
        -- --data_dir CUB_200_2011 --weights googlenet.npz

Every recipe of the folder trains an embedding layer, and what its loss learns, on the features of
its backbone. What stands behind `--` goes to `train.py`, which reads the recipes. Writes
runs/NAME/frozen.md: Recall@1 in percent, by distance and by the learned score, of the classes that
`validation_share` holds out, after 0, 30, 100, 300, 1,000, ... steps, mean over the seeds. Settings
that it cannot follow, such as `sampler`, must be at their defaults.
"""

import argparse
import dataclasses
import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf
from scores import RUNS
from tqdm import tqdm

import pipelines
import tfdml
from pipelines.images import named
from tfdml.checks import check
from tfdml.command_line import one_sentence
from tfdml.evaluation import recall_at_k
from tfdml.programs import train
from tfdml.quiet import keep_printing
from tfdml.runs.images import images_to_score, load_images
from tfdml.runs.learning_rate import learning_rate
from tfdml.runs.recipe import Recipe

PROGRAM = "frozen_features.py"
OWN_FLAGS = ("--config", "--seed", "--resume", "--devices")
STEPS = (0, 30, 100, 300, 1000, 3000, 10_000)  # after which to score
OF_FEATURES = (
    *("dataset", "data_dir", "skip_invalid", "boxes", "validation_share", "backbone", "weights"),
    *("image_size", "warp_size", "keep_aspect", "trim_white", "mean_image"),
)
OF_TRAINING = (
    *("loss", "loss_options", "embedding_dim", "classes_per_batch", "images_per_class", "steps"),
    *("learning_rate", "warmup_steps", "schedule", "decay_factor", "decay_every"),
    *("head_multiplier", "checkpoint_every", "run"),
)


def main():
    keep_printing()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=pathlib.Path, help="folder of recipes, *.yaml")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="default: 0")
    own, settings = train.split_at_dashes(parser, sys.argv[1:], OWN_FLAGS)
    given = parser.parse_args(own)
    if len(set(given.seeds)) < len(given.seeds) or min(given.seeds) < 0:
        parser.error(f"--seeds must be >= 0 and differ. Received: {given.seeds}")
    recipes = sorted(given.folder.glob("*.yaml"))
    if not recipes:
        parser.error(f"{given.folder} must hold recipes, *.yaml")
    with one_sentence(PROGRAM, ValueError, TypeError, OSError):
        table = table_of(recipes, settings, given.seeds)
    folder = RUNS / "_".join(given.folder.resolve().parts[-2:])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "frozen.md").write_text(table + "\n", encoding="utf-8")
    print(table)


def table_of(paths, settings, seeds):
    """The table of recipes, given by their paths and with further settings as flags."""
    recipes = {path.stem: train.recipe_of(["--config", str(path), *settings]) for path in paths}
    steps = sorted({recipe.steps for recipe in recipes.values()})
    check(len(steps) == 1, "all recipes must have the same `steps`", steps=steps)
    followed = {*OF_FEATURES, *OF_TRAINING}
    others = [field.name for field in dataclasses.fields(Recipe) if field.name not in followed]
    for name, recipe in recipes.items():
        recipe.check_default(others, f"{name}: leave out `{{name}}`, which it does not follow")
        loss = tfdml.losses.get(recipe.loss, **recipe.loss_options)
        parts = [getattr(loss, part) for part in ("base", "regularizer") if hasattr(loss, part)]
        parts = parts or [loss]
        plain = all(type(part).prepare is tfdml.losses.MetricLoss.prepare for part in parts)
        expectation = "the loss must have one level, and not start from the training images"
        check(plain and loss.levels == 1, expectation, recipe=name, loss=recipe.loss)
    known, lines = {}, []
    for name, recipe in tqdm(recipes.items(), "Recipes", disable=None):
        of = tuple(getattr(recipe, setting) for setting in OF_FEATURES)
        if of not in known:
            known[of] = Features(recipe)
        recipe, _ = recipe.completed(known[of].train.num_classes)
        runs = [scores_of(recipe, known[of], seed) for seed in seeds]
        for ranked_by in runs[0]:
            means = 100 * np.mean([run[ranked_by] for run in runs], axis=0)
            lines.append(f"| {name} | {ranked_by} | {' | '.join(f'{x:.1f}' for x in means)} |")
    heads = ["recipe", "ranked by", *(f"{step:,}" for step in points_of(recipe))]
    return "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *lines])


class Features:
    """Features of the images to train on and to score, and their labels."""

    def __init__(self, recipe):
        images = load_images(recipe)
        keras.utils.set_random_seed(recipe.seed)
        backbone = tfdml.models.build_embedder(
            recipe.backbone,
            None,
            input_shape=images.dataset.image_size,
            weights=recipe.weights,
            normalize=False,
        )
        self.train, self.test = images.train, images.test
        self.of_train, self.of_test = (
            features_of(split, images.dataset, backbone) for split in (images.train, images.test)
        )


def features_of(split, dataset, backbone):
    with named(split):
        return backbone.predict(images_to_score(split, dataset), verbose=0)


def points_of(recipe):
    return [*(step for step in STEPS if step < recipe.steps), recipe.steps]


def scores_of(recipe, features, seed):
    """{what ranks: Recall@1 after each number of steps}."""
    keras.utils.set_random_seed(seed)
    loss = tfdml.losses.get(recipe.loss, **recipe.loss_options)
    inputs = keras.Input(features.of_train.shape[1:])
    rows = keras.layers.Dense(recipe.embedding_dim, name="embedding")(inputs)
    if loss.normalize:
        rows = tfdml.layers.UnitLength()(rows)
    model = tfdml.EmbeddingModel(keras.Model(inputs, rows))
    multipliers = {"^embedding/": recipe.head_multiplier}
    multipliers |= {f"^{x.name}/": recipe.head_multiplier for x in loss.layers if x.trainable}
    optimizer = tfdml.optimizers.Adam(learning_rate(recipe), multipliers=multipliers)
    model.compile(optimizer=optimizer, loss=loss)
    rows = pipelines.Split(inputs=features.of_train, labels=features.train.labels)
    sampler = pipelines.Balanced(recipe.classes_per_batch, recipe.images_per_class)
    batches, done = iter(pipelines.batches(rows, sampler, seed=seed)), 0
    similarities = {"distance": None}
    if loss.learns_similarity:
        similarities["score"] = tf.function(loss.layer.matrix, reduce_retracing=True)
    found = {ranked_by: [] for ranked_by in similarities}
    for step in points_of(recipe):
        for _ in range(step - done):
            model.train_on_batch(*next(batches))
        done = step
        embeddings = model.embed(features.of_test)
        for ranked_by, similarity in similarities.items():
            recall = recall_at_k(embeddings, features.test.labels, k=1, similarity=similarity)
            found[ranked_by].append(recall[1])
    return found


if __name__ == "__main__":
    main()
