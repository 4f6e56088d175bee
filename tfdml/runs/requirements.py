"""What a recipe must meet, checked before minutes of work."""

import os

import pipelines
from tfdml import runs
from tfdml.checks import check, check_bool, check_integer, check_options
from tfdml.files import identity
from tfdml.losses.index import check_loss
from tfdml.models.backbones import how_to_convert
from tfdml.quiet import import_tensorflow
from tfdml.runs.folders import RUNS, SAVED_MODELS, check_start
from tfdml.runs.run_images import preprocessing_of
from tfdml.serving.options import export_options

SAMPLER_OPTIONS = {
    "groups": ("super_classes", "images_per_class", "evenly"),  # of `pipelines.group_batches`
    "pairs": ("hard_neighbours", "reshuffle"),  # of `pipelines.pair_batches`
}


def check_files(recipe, starts=True):
    """Checks what needs neither the images nor TensorFlow.

    A network that `starts` is not loaded from the run's own checkpoint.
    """
    check_loss(recipe.loss, recipe.loss_options)
    if recipe.init_from and starts:
        check_start(recipe)
    if recipe.dataset == "folder" and recipe.data_dir is not None:
        here = identity(recipe.data_dir) == identity(".")
        expectation = (
            f"`data_dir` must not be the folder of the run itself: {RUNS} and {SAVED_MODELS}, "
            "which it makes here, would be classes. Run in another folder"
        )
        check(not here, expectation, data_dir=recipe.data_dir)
    if recipe.data_dir is None or os.path.exists(recipe.data_dir):
        # If not, loading says first what the images are.
        if starts:
            _check_weights(recipe)
        preprocessing_of(vars(recipe), recipe.mean_image)
    pipelines.Augmentation().changed(**recipe.augmentation)
    available = SAMPLER_OPTIONS.get(recipe.sampler, ())
    check_options(f"sampler {recipe.sampler!r}", recipe.sampler_options, available)
    check_integer(1, super_classes=recipe.super_classes)
    check_bool(hard_neighbours=recipe.sampler_options.get("hard_neighbours", False))
    precision = export_options(recipe.export_options).precision
    expectation = (
        "a run is exported as float32; `evaluate.py --export` rounds it and measures the loss"
    )
    check(precision == "float32", expectation, precision=precision)


def check_model(recipe):
    """Checks options of the loss and the network. Imports TensorFlow."""
    import_tensorflow()
    runs.check_network(recipe)


def _check_weights(recipe):
    """Raises a ValueError for weights that do not exist; it says how to convert published ones."""
    none = "`weights` must be null for small_cnn, which has no pretrained ones"
    recipe.check(recipe.weights is None or recipe.backbone != "small_cnn", none)
    hint = how_to_convert(recipe.backbone)  # of backbones without weights in Keras
    named = None if hint else "imagenet"
    recipe.check(
        recipe.weights in (None, named) or os.path.isfile(recipe.weights),
        f"`weights` must be an existing file{': ' if hint else ''}{hint}",
    )
    if recipe.weights and hint:
        converted = recipe.weights.endswith(".npz")
        recipe.check(converted, f"`weights` must be a converted .npz file: {hint}")
