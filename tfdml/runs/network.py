"""The model of a run: embedder, loss and optimizer by its recipe."""

import contextlib
import dataclasses
import re
import sys

import keras

import tfdml
from pipelines.loading import named
from tfdml import losses
from tfdml.checks import check, check_fits
from tfdml.command_line import verbosity
from tfdml.models import BACKBONES, EmbeddingModel, backbone_of
from tfdml.models.embedder import check_pooling, dropout_of_levels
from tfdml.models.precision import built_with, in_float32
from tfdml.runs.checkpoints import copy_weights, learning_rate
from tfdml.runs.recipe import CLASS_SAMPLERS
from tfdml.runs.run_batches import images_to_score


def check_network(recipe):
    """Checks options of the loss and the network."""
    loss = losses.get(recipe.loss, **recipe.loss_options)
    levels, most = levels_of(recipe, loss), BACKBONES[recipe.backbone][1]
    expectation = f"backbone {recipe.backbone!r} has levels from 1 to {most}"
    check(levels <= most, expectation, levels=levels)
    expectation = f"`levels` must be those of loss {recipe.loss!r}, {loss.levels}"
    recipe.check(loss.levels in (1, levels), expectation)
    if levels > 1:
        expectation = "`embedding_dim` must be a number where there are several levels"
        check(recipe.embedding_dim is not None, expectation, embedding_dim=None, levels=levels)
    else:
        expectation = "`exit_multiplier` requires a model with early exits (levels > 1)"
        recipe.check(recipe.exit_multiplier is None, expectation)
    dropout_of_levels(recipe.dropout, levels)
    if "halves" in (getattr(part, "pairs", None) for part in (loss, getattr(loss, "base", None))):
        hard = recipe.sampler_options.get("hard_neighbours", False)
        expectation = (
            "`pairs` 'halves' of a loss needs the sampler `pairs` without `hard_neighbours`: in "
            "other batches hardly any of these pairs is of one class"
        )
        fits = recipe.sampler == "pairs" and not hard
        check(fits, expectation, sampler=recipe.sampler, hard_neighbours=hard)
    check_pooling(recipe.backbone, recipe.pooling)


def build_model(recipe, split, dataset):
    """The compiled `EmbeddingModel` of a recipe, for the `Split` to train on and its `Dataset`."""
    keras.utils.set_random_seed(recipe.seed)
    loss = losses.get(recipe.loss, **recipe.loss_options)
    with built_with(recipe.precision), _bars_in_a_terminal():
        embedder = tfdml.models.build_embedder(
            recipe.backbone,
            recipe.embedding_dim,
            input_shape=dataset.image_size,
            weights=recipe.weights,
            normalize=loss.normalize,
            levels=levels_of(recipe, loss),
            dropout=recipe.dropout,
            mirror=recipe.mirror,
            pooling=recipe.pooling,
            freeze_batch_norm=recipe.freeze_batch_norm,
        )
        model = EmbeddingModel(embedder, micro_batch=recipe.micro_batch)
    if recipe.init_from:
        copy_weights(recipe, embedder)
    width = embedder.output_shape[-1]
    images = max(len(each.labels) for each in (split, *dataset.splits.values()))
    check_fits(4 * images * width, "embeddings of all images", images=images, embedding_dim=width)
    _prepare_loss(loss, recipe, embedder, split, dataset)
    model.compile(optimizer=_optimizer_of(recipe, embedder, loss), loss=loss)
    # What a loss cannot be computed from, it says now, before the run has a folder.
    loss([0, split.num_classes - 1], keras.ops.zeros((2, width)))
    return model


def _prepare_loss(loss, recipe, embedder, split, dataset):
    """Tells the loss what it learns from, and checks that it can train with these batches."""
    classes = min(recipe.batch_size, split.num_classes)
    if recipe.sampler in CLASS_SAMPLERS:
        classes = recipe.classes_per_batch
    sizes = {"rows": recipe.batch_size, "classes": classes, "width": embedder.output_shape[-1]}

    def embeddings_of(network):
        loss.check_run(**sizes, steps=recipe.steps)  # before it takes long
        print("Embedding the training images for the loss", flush=True)
        return _predict(network, split, dataset)

    loss.prepare(
        split.labels,
        embeddings=lambda: embeddings_of(embedder),
        features=lambda: embeddings_of(backbone_of(embedder)),
    )
    loss.check_run(**sizes, steps=recipe.steps)


def _optimizer_of(recipe, embedder, loss):
    exits = recipe.exit_multiplier or recipe.head_multiplier
    paths = [variable.path for variable in embedder.trainable_variables]
    multipliers = {
        pattern: multiplier
        for pattern, multiplier in (
            (r"^embedding\d?/", recipe.head_multiplier),
            (r"^(exit|loss)\d_\w+/", exits),
        )
        if any(re.search(pattern, path) for path in paths)
    }
    for layer in loss.layers:
        if layer.trainable:
            own = getattr(layer, "learning_rate_multiplier", None)
            if own is None:
                own = recipe.head_multiplier
                suggested = getattr(layer, "suggested_multiplier", None)
                if suggested and (recipe.weights or recipe.init_from):
                    own = suggested
                    print(f"Learning rate of the proxies: × {own:g}, on top of trained weights")
            multipliers[f"^{layer.name}/"] = own
    options = {
        "learning_rate": learning_rate(recipe),
        "multipliers": multipliers,
        "bias_multiplier": recipe.bias_multiplier,
        "l2": recipe.weight_decay,
        "clipvalue": recipe.clip_value,
        "global_clipnorm": recipe.clip_norm,
        # Without new layers all learn.
        "head_steps": (multipliers and recipe.head_steps) or 0,
    }
    if recipe.optimizer == "adam":
        return tfdml.optimizers.Adam(**options)
    return tfdml.optimizers.SGD(momentum=0.9, **options)


def with_loss_options(recipe):
    """The recipe with the numbers and words of the options of the loss that are not given."""
    options = dict(recipe.loss_options)
    for name, value in losses.get(recipe.loss, **options).get_config().items():
        if name != "name" and isinstance(value, (bool, int, float, str, list, tuple)):
            options.setdefault(name, list(value) if isinstance(value, tuple) else value)
    return dataclasses.replace(recipe, loss_options=options)


def levels_of(recipe, loss):
    return recipe.levels or loss.levels


def embed_scored(model, images):
    """The embeddings of the images to score, in float32."""
    return _predict(in_float32(model.embedder), images.test, images.dataset)


def _predict(network, split, dataset):
    with named(split):
        return network.predict(images_to_score(split, dataset), verbose=verbosity())


@contextlib.contextmanager
def _bars_in_a_terminal():
    """Within the block Keras draws progress bars, such as of downloads, in a terminal only."""
    drawn = keras.utils.is_interactive_logging_enabled()
    if not sys.stdout.isatty():
        keras.utils.disable_interactive_logging()
    try:
        yield
    finally:
        if drawn:
            keras.utils.enable_interactive_logging()
