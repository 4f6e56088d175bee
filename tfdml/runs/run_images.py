"""The images of a run: what is trained on, and what is scored."""

import dataclasses
import hashlib
import pathlib
import sys
from typing import Any, NamedTuple

import pipelines
from tfdml import runs
from tfdml.checks import check
from tfdml.command_line import program_name
from tfdml.models.backbones import check_colour
from tfdml.quiet import import_tensorflow
from tfdml.runs.recipe import CLASS_SAMPLERS, FEATURES
from tfdml.runs.task_options import OF_FILES
from tfdml.serving.options import export_options


class Images(NamedTuple):
    """What a run trains on and what it scores."""

    train: Any  # `Split`, its classes numbered 0, 1, 2, ...
    test: Any  # `Split` to score: of a dataset with a gallery, queries and gallery
    queries: Any  # (n,) booleans, which rows of `test` are queries; None if all are
    dataset: Any  # `Dataset`, with the size and the preprocessing of the run
    corrections: Any = None  # hash of the files of `exclude` and `relabel`

    @property
    def counts(self):
        """Numbers of images, as in scores.json."""
        counts = {"training_images": len(self.train.labels), "scored_images": len(self.test.labels)}
        return counts | ({"corrections": self.corrections} if self.corrections else {})


def load_images(recipe, fold=None):
    """The `Images` of a recipe; with a `fold` those of `pipelines.hold_out_fold`."""
    options = {name: getattr(recipe, name) for name in ("skip_invalid", *OF_FILES)}
    if recipe.dataset.startswith(FEATURES):
        dataset = runs.dataset_of_features(recipe.dataset)
    else:
        dataset = pipelines.load(recipe.dataset, recipe.data_dir, **options)
    dataset.train.check_one_label("images to train on by tfdml-train")
    dataset = _preprocessed(recipe, dataset)
    queries = None
    if fold is not None:
        train, test = pipelines.hold_out_fold(dataset.train, *fold)
    elif recipe.validation_share:
        train, test = pipelines.hold_out_classes(dataset.train, recipe.validation_share)
    else:
        train, (test, queries) = dataset.train, dataset.scored()
    _check_classes(recipe, train, test)
    if recipe.sampler == "groups":
        dataset.train.check_super_labels()
    files = [pathlib.Path(path).read_bytes() for path in (recipe.exclude, recipe.relabel) if path]
    corrections = hashlib.sha256(b"\0".join(files)).hexdigest()[:16] if files else None
    # A loss finds classes by their ids.
    images = Images(train.renumbered(), test, queries, dataset, corrections)
    print(
        f"{dataset.name}: {len(train.labels):,} images of {train.num_classes:,} classes to train, "
        f"{len(test.labels):,} of {test.num_classes:,} to score"
    )
    return images


def _preprocessed(recipe, dataset):
    if dataset.train.inputs is not None:
        return dataset
    image_size = dataset.image_size
    if side := recipe.image_size or _side_of_preset(recipe.backbone):
        image_size = (side, side, image_size[2])
    preprocessing = preprocessing_of(vars(recipe), recipe.mean_image)
    # Its crop takes the place of the dataset's, unless the recipe asks for one.
    crop = {"crop": 1.0} if preprocessing.takes_crops else {}
    augmentation = dataset.augmentation.changed(**crop | recipe.augmentation)
    check_colour(image_size, recipe.weights, recipe.backbone)
    preprocessing.check_sizes(image_size, augmentation)
    export_options(recipe.export_options).check_size(image_size)
    own = {"image_size": image_size, "preprocessing": preprocessing, "augmentation": augmentation}
    return dataclasses.replace(dataset, **own)


def _side_of_preset(backbone):
    """Side in pixels of the images of a preset; None for other backbones."""
    kind, _, preset = backbone.partition(":")
    if kind != "hub":
        return None
    import_tensorflow()
    from tfdml.models.hub import preset_image_size  # imports Keras

    return preset_image_size(preset)


def _check_classes(recipe, train, test):
    wanted, classes = recipe.classes_per_batch, train.num_classes
    if wanted and recipe.sampler in CLASS_SAMPLERS:
        expectation = "`classes_per_batch` must not exceed the number of training classes"
        check(wanted <= classes, expectation, classes_per_batch=wanted, classes=classes)
    images, scored, held = len(test.labels), test.num_classes, recipe.validation_share
    expectation = "there must be 2 or more classes to train besides those to score"
    check(classes >= 2, expectation, classes=classes, to_score=scored, validation_share=held)
    expectation = "at least one class to score must have 2 images or more"
    check(scored < images, expectation, images=images, classes=scored)
    expectation = "there must be 2 or more classes to score: among images of one all are right"
    check(scored >= 2, expectation, classes=scored, validation_share=held)


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
    """How images are brought to their size, by settings of a recipe, perhaps of an old version."""
    names = ("warp_size", "keep_aspect", "trim_white")
    given = {name: settings[name] for name in names if name in settings}
    mean = mean_image and pipelines.read_mean_image(mean_image)
    return pipelines.Preprocessing(**given, mean_image=mean)
