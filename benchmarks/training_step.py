"""Time of a training step of a recipe on this machine, and of all its steps.

    python benchmarks/training_step.py recipes/hdc/papers.yaml -- --row cars196_hdc
    python benchmarks/training_step.py a.yaml b.yaml --steps 20 -- --precision mixed_bfloat16

What stands behind `--` goes to `train.py`, over the settings of the recipe.
The network, loss, batch and optimizer are those of the recipe, which needs an `image_size`; the
images are noise and the weights random, which cost the same, so no data is needed. Reading images
is not included. The seconds of all cores together (CPU) are comparable on a machine that others use
too. A bare step is forward, loss, backward and update of the same network in one function, without
Keras' `fit`, measured in turns with it; the limit is 1.05.
"""

import argparse
import dataclasses
import pathlib
import sys

import numpy as np
import tensorflow as tf

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import pipelines
from benchmarks.timing import seconds_of
from pipelines.split import Dataset
from tfdml.runs.network import build_model
from tfdml.runs.recipe_flags import recipe_of


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipes", type=pathlib.Path, nargs="+", help="YAML files of settings")
    parser.add_argument("--steps", type=int, default=3, help="steps of a turn; default: 3")
    parser.add_argument("--turns", type=int, default=3, help="the fastest counts; default: 3")
    words = [*sys.argv[1:], "--"]
    settings = words[words.index("--") + 1 : -1]
    arguments = parser.parse_args(words[: words.index("--")])
    for flag in settings:
        if flag.partition("=")[0] in ("--devices", "--resume"):
            parser.error(f"{flag} cannot stand behind --")
    for name in ("steps", "turns"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name} must be >= 1. Received: {getattr(arguments, name)}")
    width = max(len(str(path)) for path in arguments.recipes)
    print(f"{'recipe':{width}}{'s/step':>10}{'CPU':>10}{'of bare':>10}{'steps':>10}{'hours':>10}")
    for path in arguments.recipes:
        recipe = without_weights(recipe_of(["--config", str(path), *settings]))
        if recipe.image_size is None:
            parser.error(f"{path} must have an `image_size`: give one behind --")
        recipe, _ = recipe.completed(recipe.classes_per_batch or 32)
        seconds, cpu, bare = seconds_per_step(recipe, arguments.steps, arguments.turns)
        hours = seconds * recipe.steps / 3600
        times = f"{seconds:10.3f}{cpu:10.3f}{seconds / bare:10.2f}{recipe.steps:10,}{hours:10.1f}"
        print(f"{path!s:{width}}{times}", flush=True)


def without_weights(recipe):
    """The recipe with random weights, and the batch normalisation that it has with its own."""
    frozen = recipe.freeze_batch_norm
    frozen = recipe.weights is not None if frozen is None else frozen
    return dataclasses.replace(recipe, weights=None, freeze_batch_norm=frozen)


def seconds_per_step(recipe, steps, turns):
    """Wall and CPU seconds of a step of `fit`, and wall seconds of a bare step.

    Args:
        recipe: `Recipe` with an `image_size`.
        steps: Steps of a turn.
        turns: Of each, after one that compiles; the fastest counts.
    """
    model, batch = model_on_noise(recipe)
    ready = tf.data.Dataset.from_tensors(batch).repeat()
    images, labels = map(tf.constant, batch)

    @tf.function
    def update(images, labels):
        with tf.GradientTape() as tape:
            loss = model.loss(labels, model(images, training=True), training=True)
        variables = model.trainable_variables
        model.optimizer.apply(tape.gradient(loss, variables), variables)

    def fit():
        model.fit(ready, steps_per_epoch=steps, verbose=0)

    def bare():
        for _ in range(steps):
            update(images, labels)

    measured = [[seconds_of(each) for each in (fit, bare)] for _ in range(turns + 1)][1:]
    (seconds, cpu), (alone, _) = (min(turns) for turns in zip(*measured, strict=True))
    return seconds / steps, cpu / steps, alone / steps


def model_on_noise(recipe):
    """The model of a recipe with an `image_size`, and a batch of noise: images and labels."""
    classes, images = recipe.classes_per_batch, recipe.images_per_class
    size = (recipe.image_size, recipe.image_size, 3)
    pixels = np.random.default_rng(0).integers(0, 256, (recipe.batch_size, *size), np.uint8)
    split = pipelines.Split(pixels, np.repeat(np.arange(classes), images))
    other = pipelines.Split(pixels[:2], np.array([classes, classes]))
    model = build_model(recipe, split, Dataset("noise", split, other, image_size=size))
    return model, (pixels.astype("float32"), split.labels)


if __name__ == "__main__":
    main()
