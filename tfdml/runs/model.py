"""The model of a run: embedder, loss and optimizer by its recipe."""

import dataclasses
import re

from tfdml.checks import check_fits
from tfdml.command_line import verbosity
from tfdml.quiet import bars_in_a_terminal
from tfdml.runs.checkpoints import copy_weights
from tfdml.runs.images import images_to_score
from tfdml.runs.learning_rate import learning_rate
from tfdml.runs.recipe import CLASS_SAMPLERS


def build_model(recipe, split, dataset):
    """The compiled `EmbeddingModel` of a recipe, for the `Split` to train on and its `Dataset`."""
    import keras

    import tfdml
    from tfdml.models.precision import built_with

    keras.utils.set_random_seed(recipe.seed)
    loss = tfdml.losses.get(recipe.loss, **recipe.loss_options)
    with built_with(recipe.precision), bars_in_a_terminal():
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
        model = tfdml.EmbeddingModel(embedder, micro_batch=recipe.micro_batch)
    if recipe.init_from:
        copy_weights(recipe, embedder)

    width = embedder.output_shape[-1]
    images = max(len(each.labels) for each in (split, *dataset.splits.values()))
    check_fits(4 * images * width, "embeddings of all images", images=images, embedding_dim=width)

    def check_loss():
        classes = min(recipe.batch_size, split.num_classes)
        if recipe.sampler in CLASS_SAMPLERS:
            classes = recipe.classes_per_batch
        loss.check_run(rows=recipe.batch_size, classes=classes, width=width, steps=recipe.steps)

    def embeddings_of(network):
        from pipelines.loading import named

        check_loss()  # before it takes long
        print("Embedding the training images for the loss", flush=True)
        with named(split):
            return network.predict(images_to_score(split, dataset), verbose=verbosity())

    loss.prepare(
        split.labels,
        embeddings=lambda: embeddings_of(embedder),
        features=lambda: embeddings_of(tfdml.models.backbone_of(embedder)),
    )
    check_loss()
    multipliers = multipliers_of(recipe, embedder)
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
        optimizer = tfdml.optimizers.Adam(**options)
    else:
        optimizer = tfdml.optimizers.SGD(momentum=0.9, **options)
    model.compile(optimizer=optimizer, loss=loss)
    # What a loss cannot be computed from, it says now, before the run has a folder.
    rows = keras.ops.zeros((2, *embedder.output_shape[1:]))
    loss([0, split.num_classes - 1], rows)
    return model


def with_loss_options(recipe):
    """The recipe with the numbers and words of the options of the loss that are not given."""
    import tfdml

    options = dict(recipe.loss_options)
    for name, value in tfdml.losses.get(recipe.loss, **options).get_config().items():
        if name != "name" and isinstance(value, (bool, int, float, str, list, tuple)):
            options.setdefault(name, list(value) if isinstance(value, tuple) else value)
    return dataclasses.replace(recipe, loss_options=options)


def multipliers_of(recipe, embedder):
    """Patterns of the variables of the embedding layers and exits, and their multipliers."""
    exits = recipe.exit_multiplier or recipe.head_multiplier
    multipliers = {r"^embedding\d?/": recipe.head_multiplier, r"^(exit|loss)\d_\w+/": exits}
    paths = [variable.path for variable in embedder.trainable_variables]
    return {
        pattern: multiplier
        for pattern, multiplier in multipliers.items()
        if any(re.search(pattern, path) for path in paths)
    }


def levels_of(recipe, loss):
    return recipe.levels or loss.levels
