"""The images of a run: what is trained on, what is scored, and the batches of either."""

import collections
import dataclasses
import math
import sys
import warnings
from typing import Any, NamedTuple

import pipelines
from tfdml.checks import check, check_fits
from tfdml.command_line import program_name
from tfdml.files import copies
from tfdml.models.backbones import check_colour
from tfdml.progress import progress
from tfdml.runs.recipe import CLASS_SAMPLERS
from tfdml.serving.options import export_options


class Images(NamedTuple):
    """What a run trains on and what it scores."""

    train: Any  # `Split`, its classes numbered 0, 1, 2, ...
    test: Any  # `Split` to score: of a dataset with a gallery, queries and gallery
    queries: Any  # (n,) booleans, which rows of `test` are queries; None if all are
    dataset: Any  # `Dataset`, with the size and the preprocessing of the run


def load_images(recipe, fold=None):
    """The `Images` of a recipe; with a `fold` (number, of how many), those of
    `pipelines.hold_out_fold`.

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
        train_split, test_split = pipelines.hold_out_fold(dataset.train, *fold)
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


def warn_of_trained(program, trained, split):
    """Warns if classes of a `Split` to score are among the names of those trained on."""
    known = sorted(set(trained) & set(split.names))
    if known:
        print(
            f"{program_name(program)}: warning: {len(known):,} of the {split.num_classes:,} "
            f"scored classes were trained on, such as {known[0]}",
            file=sys.stderr,
        )


def files_of(split):
    """The files of the images, of a cache those that it was made of; None if it states none."""
    if split.holds_records:
        from pipelines.datasets.cached import sources_of  # which waits for NumPy

        return sources_of(split.images)
    return split.images.tolist() if split.holds_paths else None


def warn_of_copies(files, others, what):
    """Warns of others that have the content of another file, with their number and an example."""
    found = list(copies(files, others))
    if found:
        path, other = found[0]
        sentence = f"{len(found):,} {what} have the content of another file, such as {other} and"
        warnings.warn(f"{sentence} {path}: they count as images of their own", stacklevel=2)


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
    batch, pixels = recipe.batch_size, math.prod(dataset.image_size)
    needed = 4 * batch // part[1] * max(pixels, batch)  # pixels, or distances to the batch
    check_fits(needed, "a batch", **sizes_of(recipe))
    check_batch(recipe, split)
    neighbours, callbacks = hard_neighbours(recipe, split, dataset)
    options, sizes = recipe.sampler_options, sizes_of(recipe)
    sampler = {
        "balanced": lambda: pipelines.Balanced(**sizes),
        "mixed": lambda: pipelines.Mixed(**sizes),
        "groups": lambda: pipelines.Groups(recipe.classes_per_batch, batch, **options),
        "whole_classes": lambda: pipelines.WholeClasses(batch),
        "shuffled": lambda: pipelines.Shuffled(batch),
        "pairs": lambda: pipelines.Pairs(batch, **options | {"hard_neighbours": neighbours}),
    }[recipe.sampler]()
    reader = pipelines.Reader(dataset.image_size, dataset.preprocessing, dataset.augmentation)
    return pipelines.batches(split, sampler, reader, recipe.seed, start_step, part), callbacks


def sizes_of(recipe):
    """What the options call P and K."""
    names = ("classes_per_batch", "images_per_class")
    return {name: getattr(recipe, name) for name in names}


def check_batch(recipe, split):
    """Raises a ValueError, in the terms of a recipe, if its sampler has no batch of its size."""
    batch, images = recipe.batch_size, len(split.labels)
    largest = max(collections.Counter(split.labels.tolist()).values())
    multiple = 4 if recipe.sampler_options.get("hard_neighbours") else 2
    held = {
        "whole_classes": (
            batch >= largest + 2,
            "be at least the images of the largest class + 2",
            {"largest": largest},
        ),
        "shuffled": (batch <= images, "not exceed the images to train on", {"images": images}),
        "pairs": (batch % multiple == 0, f"be a multiple of {multiple}", {}),
    }
    holds, expectation, found = held.get(recipe.sampler, (True, "", {}))
    product = "`classes_per_batch` × `images_per_class`"
    check(holds, f"{product} must {expectation}", **sizes_of(recipe), **found)


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
    from tfdml.serving.bounded_batches import fitting_batch_size

    size, preprocessing = dataset.image_size, dataset.preprocessing
    batch = fitting_batch_size(size)
    return pipelines.evaluation_batches(split, size, batch, preprocessing=preprocessing)


def embed_split(
    signature, split, preprocessing, *, width, levels=1, crops=1, mirror=False, batch_size=None
):
    """(n, width) floats, what a signature `embed_images` makes of the images of a split, in order.

    Args:
        signature: That of an exported model.
        split: `Split` of n images.
        preprocessing: How images are brought to their size.
        width: The first numbers of an embedding to take, if it has as many.
        levels: How many levels these are, which the mean over views scales each for itself.
        crops: As for `pipelines.transforms.views`.
        mirror: As for `pipelines.transforms.views`.
        batch_size: Images embedded at once; as many as fit the memory if None.
    """
    import numpy as np  # these wait for NumPy and TensorFlow

    from pipelines.loading import named
    from pipelines.transforms import views
    from tfdml.evaluation import average_views
    from tfdml.serving.bounded_batches import InPieces, fitting_batch_size

    image_size = tuple(signature.structured_input_signature[1]["images"].shape[1:])
    width = min(width, signature.structured_outputs["embedding"].shape[1])
    batch_size = batch_size or fitting_batch_size(image_size, width)
    network = InPieces(lambda images: signature(images=images)["embedding"], batch_size)
    read_size = preprocessing.size_of_views(image_size) if crops > 1 else image_size
    rows = len(split.labels)
    check_fits(4 * rows * width, "the embeddings", images=rows, embedding_dim=width)
    pixels = math.prod(read_size) * min(batch_size, rows)
    check_fits(4 * pixels, "a batch of images", batch_size=batch_size, image_size=read_size)

    def embed(images):
        shown = views(images, image_size, crops=crops, mirror=mirror)
        embeddings = np.stack([network(view)[:, :width] for view in shown])
        return embeddings[0] if len(shown) == 1 else average_views(embeddings, levels)

    kind = {"preprocessing": preprocessing}
    batches = pipelines.evaluation_batches(split, read_size, batch_size, **kind)
    embeddings, end = np.empty((rows, width), np.float32), 0
    with named(split):
        for images in progress("Embedding", batches, unit="batch"):
            start, end = end, end + len(images)
            embeddings[start:end] = embed(images)
    return embeddings
