"""The batches of a run: of images to train on, and of images to score."""

import math
import os

import numpy as np

import pipelines
import tfdml
from pipelines.samplers import first_of_each
from tfdml.checks import total_memory
from tfdml.serving.bounded_batches import fitting_batch_size


def training_batches(recipe, start_step, split, dataset, part=(0, 1), pictures=None):
    """The batches from a step on, and the callbacks that they need.

    With a `part`, that of these batches, for samplers whose batches are of one size; `pictures` are
    those of `distinct_pictures`.
    """
    batch, sizes = recipe.batch_size, (recipe.classes_per_batch, recipe.images_per_class)
    options, neighbours, callbacks, drawn = dict(recipe.sampler_options), None, [], split
    options.pop("skip_duplicates", None)
    if pictures is not None:
        pictures = np.resize(pictures, len(split.labels))  # of features, also of views of each
        drawn = first_of_each(pictures, split)
    if options.get("hard_neighbours"):
        neighbours = pipelines.HardNeighbours(drawn.labels, batch, recipe.checkpoint_every)
        images = images_to_score(drawn, dataset)
        callbacks = [tfdml.callbacks.EmbeddingsOfEpoch(images, neighbours.refresh)]
    sampler = {
        "balanced": lambda: pipelines.Balanced(*sizes),
        "mixed": lambda: pipelines.Mixed(*sizes),
        "groups": lambda: pipelines.Groups(recipe.classes_per_batch, batch, **options),
        "whole_classes": lambda: pipelines.WholeClasses(batch),
        "shuffled": lambda: pipelines.Shuffled(batch),
        "pairs": lambda: pipelines.Pairs(batch, **options | {"hard_neighbours": neighbours}),
    }[recipe.sampler]()
    if drawn is not split:
        sampler = pipelines.DistinctPictures(sampler, pictures)
    reader = None
    if split.inputs is None:
        reader = pipelines.Reader(dataset.image_size, dataset.preprocessing, dataset.augmentation)
    kept = total_memory() / 4 if recipe.cache == "auto" else 0
    kept = kept if math.isfinite(kept) else 0  # of systems that do not state it
    return pipelines.batches(split, sampler, reader, recipe.seed, start_step, part, kept), callbacks


def distinct_pictures(recipe, split):
    """For `sampler_options.skip_duplicates`, what `pipelines.pictures_of` finds; else None."""
    table = recipe.sampler_options.get("skip_duplicates", False)
    if not table:
        return None
    table = None if table is True else os.path.expanduser(table)
    pictures = pipelines.pictures_of(split, table, recipe.data_dir or "")
    print(f"{len(pictures):,} training images of {len(np.unique(pictures)):,} pictures")
    return pictures


def images_to_score(split, dataset):
    """The images of a split, as the served model sees them, or its features, in batches."""
    if split.inputs is not None:
        return pipelines.evaluation_batches(split)
    size, preprocessing = dataset.image_size, dataset.preprocessing
    batch = fitting_batch_size(size)
    return pipelines.evaluation_batches(split, size, batch, preprocessing=preprocessing)
