"""Small training runs, small folders of images and a small dataset."""

import contextlib
import dataclasses
import json
import types

import numpy as np
import programs
import pytest
from PIL import Image

import pipelines
from tfdml.programs import train
from tfdml.runs.recipe import Recipe

SMALL = ["--dataset", "digits", "--classes_per_batch", "5", "--embedding_dim", "16"]
SMALL += ["--learning_rate", "1e-3"]  # for runs of a few steps
TWO_STEPS = ["--steps", "2", "--checkpoint_every", "1"]
UNTRAINED = types.SimpleNamespace(optimizer=types.SimpleNamespace(iterations=0))  # for a model


def write_images(folder, classes):
    """Writes random images of 16 pixels, as many of each class as `classes` names."""
    rng = np.random.default_rng(0)
    for name, count in classes.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            picture = rng.integers(0, 256, (16, 16, 3)).astype("uint8")
            Image.fromarray(picture).save(folder / name / f"{number}.png")
    return folder


def run(*arguments, cwd):
    """What train.py prints in a run that ends well."""
    result = programs.run(train.main, *arguments, cwd=cwd)
    assert result.code == 0, result.err
    return result.out


def rejection(*arguments, cwd):
    """The one sentence in which train.py rejects these arguments."""
    return programs.run(train.main, *arguments, cwd=cwd).sentence


@contextlib.contextmanager
def few_digits():
    """Within it, the digits have a quarter of their test images: a sixteenth of the pairs."""
    load = pipelines.load
    if hasattr(load, "few"):
        yield
        return

    def loaded(name, *arguments, **options):
        dataset = load(name, *arguments, **options)
        if name != "digits":
            return dataset
        return dataclasses.replace(dataset, test=dataset.test.subset(slice(None, None, 4)))

    loaded.few = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipelines, "load", loaded)
        yield


def completed(**settings):
    """A recipe with the defaults that follow from five classes, but for the learning rate."""
    return Recipe(**{"learning_rate": 1e-3, **settings}).completed(num_classes=5)[0]


def scores_of(folder):
    return json.loads((folder / "scores.json").read_text())


def small_dataset():
    """Classes of 2 to 4 random images, in super-classes of 3."""
    labels = np.repeat(np.arange(12), [2, 3, 4] * 4)
    images = np.random.default_rng(0).integers(0, 256, (36, 8, 8, 1), dtype=np.uint8)
    augmentation = pipelines.Augmentation(crop=0.5, shift=0.1, colour=0.1)
    train_split = pipelines.Split(images, labels, super_labels=labels // 3)
    return pipelines.Dataset(
        "x", train_split, pipelines.Split(images, labels + 12), (8, 8, 1), augmentation
    )
