"""The batches of a run: of images to train on, and of images to score."""

import math

import pipelines
import tfdml
from tfdml.checks import total_memory
from tfdml.serving.bounded_batches import fitting_batch_size


def training_batches(recipe, start_step, split, dataset, part=(0, 1)):
    """The batches from a step on, or a `part` of each, and the callbacks that they need."""
    batch, sizes = recipe.batch_size, (recipe.classes_per_batch, recipe.images_per_class)
    options, neighbours, callbacks = recipe.sampler_options, None, []
    if options.get("hard_neighbours"):
        neighbours = pipelines.HardNeighbours(split.labels, batch, recipe.checkpoint_every)
        images = images_to_score(split, dataset)
        callbacks = [tfdml.callbacks.EmbeddingsOfEpoch(images, neighbours.refresh)]
    sampler = {
        "balanced": lambda: pipelines.Balanced(*sizes),
        "mixed": lambda: pipelines.Mixed(*sizes),
        "groups": lambda: pipelines.Groups(recipe.classes_per_batch, batch, **options),
        "whole_classes": lambda: pipelines.WholeClasses(batch),
        "shuffled": lambda: pipelines.Shuffled(batch),
        "pairs": lambda: pipelines.Pairs(batch, **options | {"hard_neighbours": neighbours}),
    }[recipe.sampler]()
    reader = None
    if split.inputs is None:
        reader = pipelines.Reader(dataset.image_size, dataset.preprocessing, dataset.augmentation)
    kept = total_memory() / 4 if recipe.cache == "auto" else 0
    kept = kept if math.isfinite(kept) else 0  # of systems that do not state it
    return pipelines.batches(split, sampler, reader, recipe.seed, start_step, part, kept), callbacks


def images_to_score(split, dataset):
    """The images of a split, as the served model sees them, or its features, in batches."""
    if split.inputs is not None:
        return pipelines.evaluation_batches(split)
    size, preprocessing = dataset.image_size, dataset.preprocessing
    batch = fitting_batch_size(size)
    return pipelines.evaluation_batches(split, size, batch, preprocessing=preprocessing)
