"""The images of a run: what is trained on, what is scored, and the batches of either."""

import collections
import dataclasses
import math
import sys
from typing import Any, NamedTuple

import numpy as np

import pipelines
from tfdml.checks import check, check_fits
from tfdml.command_line import program_name
from tfdml.models.published import check_colour
from tfdml.runs.recipe import CLASS_SAMPLERS
from tfdml.serving.options import export_options


class Images(NamedTuple):
    """What a run trains on and what it scores."""

    train: Any  # `Split`, its classes numbered 0, 1, 2, ...
    test: Any  # `Split` to score: of a dataset with a gallery, queries and gallery
    queries: Any  # (n,) booleans, which rows of `test` are queries; None if all are
    dataset: Any  # `Dataset`, with the size and the preprocessing of the run


def load_images(recipe, fold=None):
    """The `Images` of a recipe; with a `fold` (number, of how many), those of `hold_out_fold`.

    Classes to test on are not looked at where others are held out.
    """
    options = {"skip_invalid": recipe.skip_invalid, "boxes": recipe.boxes}
    dataset = pipelines.load(recipe.dataset, recipe.data_dir, **options)
    dataset.train.check_one_label(f"images to train on by {program_name('train')}")
    image_size = dataset.image_size
    if side := recipe.image_size:
        image_size = (side, side, image_size[2])
    preprocessing = preprocessing_of(vars(recipe), recipe.mean_image)
    # Its crop takes the place of the dataset's, unless the recipe asks for one.
    crop = {"crop": 1.0} if preprocessing.takes_crops else {}
    dataset = dataclasses.replace(
        dataset,
        image_size=image_size,
        augmentation=dataset.augmentation.changed(**crop | recipe.augmentation),
        preprocessing=preprocessing,
    )
    check_colour(image_size, recipe.weights)
    dataset.preprocessing.check_sizes(image_size, dataset.augmentation)
    export_options(recipe.export_options).check_size(image_size)
    queries = None
    if fold is not None:
        train_split, test_split = hold_out_fold(dataset.train, *fold)
    elif recipe.validation_share:
        share = recipe.validation_share
        train_split, test_split = pipelines.hold_out_classes(dataset.train, share)
    else:
        train_split, (test_split, queries) = dataset.train, dataset.scored()
    wanted, classes = recipe.classes_per_batch, train_split.num_classes
    if wanted and recipe.sampler in CLASS_SAMPLERS:
        expectation = "`classes_per_batch` must not exceed the number of training classes"
        check(wanted <= classes, expectation, classes_per_batch=wanted, classes=classes)
    if recipe.sampler == "groups":
        dataset.train.check_super_labels()
    expectation = "there must be 2 or more classes to train besides those to score"
    counts = {"classes": classes, "to_score": test_split.num_classes}
    check(classes >= 2, expectation, **counts, validation_share=recipe.validation_share)
    train_split = train_split.renumbered()  # what a loss keeps of each class it finds by its id
    images, scored = len(test_split.labels), test_split.num_classes
    expectation = "at least one class to score must have 2 images or more"
    check(scored < images, expectation, images=images, classes=scored)
    expectation = (
        "there must be 2 or more classes to score: among images of one class all are right"
    )
    check(scored >= 2, expectation, classes=scored, validation_share=recipe.validation_share)
    print(
        f"{dataset.name}: {len(train_split.labels):,} images of {classes:,} classes to train, "
        f"{images:,} of {scored:,} to score"
    )
    return Images(train_split, test_split, queries, dataset)


def hold_out_fold(split, number, folds):
    """The split without one of its folds, and that fold.

    A fold has adjacent classes, for the reason that `pipelines.hold_out_classes` states.
    """
    expectation = "there must be 2 or more classes to train on in each of the `folds`"
    check(split.num_classes >= 2 * folds, expectation, folds=folds, classes=split.num_classes)
    held_out = np.isin(split.labels, np.array_split(split.classes, folds)[number])
    return split.subset(~held_out), split.subset(held_out)


def warn_of_trained(program, trained, split):
    """Warns if classes of a `Split` to score are among the names of those trained on."""
    known = sorted(set(trained) & set(split.names))
    if known:
        print(
            f"{program_name(program)}: warning: {len(known):,} of the {split.num_classes:,} "
            f"scored classes were trained on, such as {known[0]}",
            file=sys.stderr,
        )


def preprocessing_of(settings, mean_image):
    """How images are brought to their size.

    Args:
        settings: {name: value} of a recipe, maybe of a version before some of them.
        mean_image: Path of the mean image; None for none.
    """
    names = ("warp_size", "keep_aspect", "trim_white")
    given = {name: settings[name] for name in names if name in settings}
    mean = mean_image and pipelines.read_mean_image(mean_image)
    return pipelines.Preprocessing(**given, mean_image=mean)


def training_batches(recipe, start_step, split, dataset, part=(0, 1)):
    """The batches from a step on, and the callbacks that they need.

    With a `part`, that of these batches, for samplers whose batches are of one size.
    """
    classes, images = recipe.classes_per_batch, recipe.images_per_class
    batch, pixels = recipe.batch_size, math.prod(dataset.image_size)
    needed = 4 * batch // part[1] * max(pixels, batch)  # pixels, or distances to the batch
    product = "`classes_per_batch` × `images_per_class`"
    received = {"classes_per_batch": classes, "images_per_class": images}
    check_fits(needed, "a batch", **received)
    options = {
        "seed": recipe.seed,
        "image_size": dataset.image_size,
        "augmentation": dataset.augmentation,
        "preprocessing": dataset.preprocessing,
        "start_step": start_step,
    }
    if recipe.sampler == "groups":
        options |= recipe.sampler_options
        return pipelines.group_batches(split, classes, batch, **options), []
    if recipe.sampler == "whole_classes":
        largest = max(collections.Counter(split.labels.tolist()).values())
        expectation = f"{product} must be at least the images of the largest class + 2"
        check(batch >= largest + 2, expectation, **received, largest=largest)
        return pipelines.whole_class_batches(split, batch, **options), []
    if recipe.sampler == "shuffled":
        count = len(split.labels)
        expectation = f"{product} must not exceed the images to train on"
        check(batch <= count, expectation, **received, images=count)
        return pipelines.shuffled_batches(split, batch, **options, part=part), []
    if recipe.sampler == "pairs":
        of = 4 if recipe.sampler_options.get("hard_neighbours") else 2
        check(batch % of == 0, f"{product} must be a multiple of {of}", **received)
        neighbours, callbacks = hard_neighbours(recipe, split, dataset)
        options |= recipe.sampler_options | {"hard_neighbours": neighbours}
        batches = pipelines.pair_batches(split, batch, **options, part=part)
        return batches, callbacks
    options |= {"sampler": recipe.sampler, "part": part}
    return pipelines.balanced_batches(split, classes, images, **options), []


def hard_neighbours(recipe, split, dataset):
    """The hard neighbours that the sampler asks for, if it does, and what refreshes them."""
    import tfdml

    if not recipe.sampler_options.get("hard_neighbours"):
        return None, []
    neighbours = pipelines.HardNeighbours(split.labels, recipe.batch_size, recipe.checkpoint_every)
    images = images_to_score(split, dataset)
    return neighbours, [tfdml.callbacks.EmbeddingsOfEpoch(images, neighbours.refresh)]


def sample_to_embed(split, dataset):
    """At most 500 images of a split, evenly spaced, as `images_to_score`."""
    count = len(split.labels)
    return images_to_score(split.subset(list(range(0, count, 1 + count // 500))), dataset)


def images_to_score(split, dataset):
    """The images of a split, as the served model sees them, in batches that fit the memory."""
    from tfdml.serving.embedding import fitting_batch_size

    size, preprocessing = dataset.image_size, dataset.preprocessing
    batch = fitting_batch_size(size)
    return pipelines.evaluation_batches(split, size, batch, preprocessing=preprocessing)
