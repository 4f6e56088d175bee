"""What a recipe must meet, checked before minutes of work."""

import os

import pipelines
from tfdml.checks import check, unknown_option
from tfdml.models import BACKBONES
from tfdml.models.published import how_to_convert
from tfdml.quiet import import_tensorflow
from tfdml.runs.checkpoints import source_of
from tfdml.runs.images import preprocessing_of
from tfdml.runs.model import levels_of

SAMPLER_OPTIONS = {
    "groups": ("super_classes", "images_per_class", "evenly"),  # of `pipelines.group_batches`
    "pairs": ("hard_neighbours", "reshuffle"),  # of `pipelines.pair_batches`
}


def check_files(recipe):
    """Checks what needs neither the images nor TensorFlow."""
    if recipe.init_from:
        source_of(recipe.init_from)
    if recipe.data_dir is None or os.path.exists(os.path.expanduser(recipe.data_dir)):
        # If not, loading says first what the images are.
        check_weights(recipe)
        preprocessing_of(recipe)
    pipelines.Augmentation().changed(**recipe.augmentation)
    for option in recipe.sampler_options:
        options = SAMPLER_OPTIONS[recipe.sampler]
        if option not in options:
            raise ValueError(unknown_option(f"sampler {recipe.sampler!r}", option, options))
    hard = recipe.sampler_options.get("hard_neighbours", False)
    check(isinstance(hard, bool), "`hard_neighbours` must be true or false", hard_neighbours=hard)


def check_model(recipe):
    """Checks options of the loss, the network and the export. Imports TensorFlow."""
    import_tensorflow()
    from tfdml import losses
    from tfdml.models.embedder import dropout_of_levels
    from tfdml.serving.options import export_options

    loss = losses.get(recipe.loss, **recipe.loss_options)
    levels, most = levels_of(recipe, loss), BACKBONES[recipe.backbone][1]
    check(
        levels <= most,
        f"backbone {recipe.backbone!r} has levels from 1 to {most}",
        levels=levels,
    )
    check(
        loss.levels in (1, levels),
        f"`levels` must be those of loss {recipe.loss!r}, {loss.levels}",
        levels=recipe.levels,
    )
    check(
        recipe.embedding_dim is not None or levels == 1,
        "`embedding_dim` must be a number where there are several levels",
        embedding_dim=None,
        levels=levels,
    )
    check(
        recipe.exit_multiplier is None or levels > 1,
        "`exit_multiplier` requires a model with early exits (levels > 1)",
        exit_multiplier=recipe.exit_multiplier,
    )
    dropout_of_levels(recipe.dropout, levels)
    options = export_options(recipe.export_options)
    check(
        options.precision == "float32",
        "a run is exported as float32; `evaluate.py --export` rounds it and measures the loss",
        precision=options.precision,
    )


def check_weights(recipe):
    """Raises a ValueError that says how to get a file of weights that is not there."""
    if recipe.weights in (None, "imagenet") or os.path.isfile(recipe.weights):
        return
    hint = how_to_convert(recipe.backbone)
    raise ValueError(
        f"`weights` must be an existing file{': ' if hint else ''}{hint}. "
        f"Received: weights={recipe.weights!r}"
    )
