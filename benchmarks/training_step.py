"""Time of a training step of a recipe on this machine, and of all its steps.

    python benchmarks/training_step.py recipes/hdc/cars196_hdc.yaml
    python benchmarks/training_step.py recipes/hdc/*.yaml --steps 20
    python benchmarks/training_step.py recipes/hdc/cars196_hdc.yaml -- --precision mixed_bfloat16

What stands behind `--` goes to `train.py`, over the settings of the recipe.
The network, loss, batch and optimizer are those of the recipe; the images are noise and the weights
random, which cost the same, so no data is needed. Reading images is not included. The seconds of
all cores together (CPU) are comparable on a machine that others use too.
"""

import argparse
import pathlib
import sys
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import pipelines  # noqa: E402
from pipelines.split import Dataset  # noqa: E402
from tfdml.programs import train  # noqa: E402


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipes", type=pathlib.Path, nargs="+", help="YAML files of settings")
    parser.add_argument("--steps", type=int, default=3, help="steps to time; default: 3")
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    arguments, settings = parser.parse_args(sys.argv[1:split]), sys.argv[split + 1 :]
    if arguments.steps < 1:
        parser.error(f"--steps must be >= 1. Received: {arguments.steps}")
    width = max(len(str(path)) for path in arguments.recipes)
    print(f"{'recipe':{width}}{'s/step':>10}{'CPU':>10}{'steps':>10}{'hours':>10}")
    for path in arguments.recipes:
        recipe, *_ = train.parse(["--config", str(path), "--weights", "null", *settings])
        recipe, _ = recipe.completed(recipe.classes_per_batch or 32)
        seconds, cpu = seconds_per_step(recipe, arguments.steps)
        hours = seconds * recipe.steps / 3600
        times = f"{seconds:10.3f}{cpu:10.3f}{recipe.steps:10,}{hours:10.1f}"
        print(f"{path!s:{width}}{times}", flush=True)


def seconds_per_step(recipe, steps):
    """Wall and CPU seconds, the mean over `steps` steps after one that compiles.

    Args:
        recipe: `Recipe` with an `image_size`.
        steps: Steps to time.
    """
    model, batch = model_on_noise(recipe)
    model.train_on_batch(*batch)
    start, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        model.train_on_batch(*batch)
    return (time.perf_counter() - start) / steps, (time.process_time() - cpu) / steps


def model_on_noise(recipe):
    """The model of a recipe with an `image_size`, and a batch of noise: images and labels."""
    classes, images = recipe.classes_per_batch, recipe.images_per_class
    size = (recipe.image_size, recipe.image_size, 3)
    pixels = np.random.default_rng(0).integers(0, 256, (classes * images, *size), np.uint8)
    split = pipelines.Split(pixels, np.repeat(np.arange(classes), images))
    other = pipelines.Split(pixels[:2], np.array([classes, classes]))
    model = train.build_model(recipe, split, Dataset("noise", split, other, image_size=size))
    return model, (pixels.astype("float32"), split.labels)


if __name__ == "__main__":
    main()
