"""The model of a run, built by its recipe or read from a checkpoint."""

import dataclasses
import re
import sys
import zipfile

import keras

import tfdml
from pipelines.loading import named
from tfdml import losses
from tfdml.checks import check
from tfdml.models import EmbeddingModel, backbone_of
from tfdml.models.backbones import most_levels
from tfdml.models.embedder import (
    build_head,
    check_pooling,
    dropout_of_levels,
    head_of,
    start_head,
)
from tfdml.models.embedding_model import model_of_head
from tfdml.models.hub import add_adapters, own_module, wrapper_of
from tfdml.models.precision import built_with, in_float32
from tfdml.models.tuning import (
    check_memory,
    layer_multipliers,
    load_adapters,
    recomputable_blocks,
)
from tfdml.runs.features import Features
from tfdml.runs.folders import CHECKPOINT, source_of
from tfdml.runs.recipe import CLASS_SAMPLERS
from tfdml.runs.run_batches import images_to_score


def check_network(recipe):
    """Checks options of the loss and the network."""
    loss = losses.get(recipe.loss, **recipe.loss_options)
    levels, most = levels_of(recipe, loss), most_levels(recipe.backbone)
    expectation = f"backbone {recipe.backbone!r} has levels from 1 to {most}"
    check(levels <= most, expectation, levels=levels)
    expectation = f"`levels` must be those of loss {recipe.loss!r}, {loss.levels}"
    recipe.check(loss.levels in (1, levels), expectation)
    expectation = "`tune` must be full for several levels"
    recipe.check(recipe.tune == "full" or levels == 1, expectation)
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
    with built_with(recipe.precision):
        embedder = _build_embedder(recipe, loss, split, dataset)
        model = EmbeddingModel(embedder, micro_batch=recipe.micro_batch)
    if recipe.init_from:
        copy_weights(recipe, embedder)
    width = embedder.output_shape[-1]
    if recipe.tune == "frozen":
        model.compile("sgd", loss=loss)
        return model
    trained = embedder
    if recipe.tune in ("head", "lora"):
        backbone_of(embedder).trainable = False
    if recipe.tune == "lora":
        add_adapters(embedder, recipe.lora_rank)
    if recipe.tune == "head":
        trained = head_of(embedder)
        if split.inputs is None:
            split = Features(embedder, dataset).embedded(split, recipe.views, recipe.seed)
        if not recipe.init_from:
            start_head(embedder, split.inputs)
    if recipe.tune == "full" and split.inputs is None:
        rows = recipe.micro_batch or recipe.batch_size
        check_memory(embedder, rows, copies=2 if recipe.optimizer == "adam" else 1)
    if recipe.recompute:
        recomputable_blocks(embedder)  # raises if there are none
    _prepare_loss(loss, recipe, trained, split, dataset)
    model.compile(optimizer=_optimizer_of(recipe, embedder, loss), loss=loss)
    # What a loss cannot be computed from, it says now, before the run has a folder.
    loss([0, split.num_classes - 1], keras.ops.zeros((2, width)))
    return model


def _build_embedder(recipe, loss, split, dataset):
    if split.inputs is not None:
        options = {"normalize": loss.normalize, "dropout": recipe.dropout}
        return build_head(split.inputs.shape[1], recipe.embedding_dim, **options)
    return tfdml.models.build_embedder(
        recipe.backbone,
        recipe.embedding_dim,
        input_shape=dataset.image_size,
        weights=recipe.weights,
        normalize=loss.normalize or recipe.tune == "frozen",
        levels=levels_of(recipe, loss),
        dropout=recipe.dropout,
        mirror=recipe.mirror,
        pooling=recipe.pooling,
        freeze_batch_norm=recipe.freeze_batch_norm,
    )


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
        features=lambda: (
            embeddings_of(backbone_of(embedder)) if split.inputs is None else split.inputs
        ),
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
                if suggested and (recipe.is_pretrained or recipe.init_from):
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
    if recipe.layer_decay:
        options["layer_multipliers"] = layer_multipliers(embedder, recipe.layer_decay)
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


def trained_part(recipe, model, images):
    """The model that a run trains, and the `Images` that it takes: all, or the head on features."""
    if recipe.tune not in ("head", "frozen") or images.train.inputs is not None:
        return model, images
    return model_of_head(model), _with_features(recipe, model.embedder, images)


def features_of(recipe, images):
    """The `Images` with the features that the backbone of a recipe starts from in their place."""
    keras.utils.set_random_seed(recipe.seed)
    loss = losses.get(recipe.loss, **recipe.loss_options)
    with built_with(recipe.precision):
        embedder = _build_embedder(recipe, loss, images.train, images.dataset)
    return _with_features(recipe, embedder, images)


def _with_features(recipe, embedder, images):
    """Those to score, and those to train on where there is a head to train."""
    features = Features(embedder, images.dataset)
    if recipe.tune == "head":
        train = features.embedded(images.train, recipe.views, recipe.seed)
        images = images._replace(train=train)
    return images._replace(test=features.embedded(images.test))


def embed_scored(model, images):
    """The embeddings of the images to score, in float32."""
    return _predict(in_float32(model.embedder), images.test, images.dataset)


def embed_with_features(model, images):
    """As `embed_scored`, and the features of the backbone before them, in one pass."""
    if images.test.inputs is not None:
        return embed_scored(model, images), images.test.inputs
    embedder = in_float32(model.embedder)
    both = keras.Model(embedder.input, [embedder.output, backbone_of(embedder).output])
    return _predict(both, images.test, images.dataset)


def _predict(network, split, dataset):
    with named(split):
        return network.predict(images_to_score(split, dataset), verbose=int(sys.stdout.isatty()))


def load_checkpoint(recipe, folder):
    """The model at the last checkpoint of a run that stopped; None before the first."""
    path = folder / CHECKPOINT
    if not path.is_file():
        return None
    module, own, _ = recipe.backbone.partition(":")
    if own and module != "hub":
        own_module(module)  # which registers its layers
    model = read_model(path)
    if model.micro_batch is None:
        model.jit_compile = None  # to be chosen for the devices of today
    if recipe.learning_rate:  # not of frozen features
        model.optimizer.learning_rate = learning_rate(recipe)  # over the steps of today
    return model


def read_model(path):
    tfdml.register()
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        check(damaged is None, "its files must have their checksums", damaged=damaged)
        return keras.models.load_model(path)
    except Exception as error:  # what a broken archive raises has no common class
        raise ValueError(f"{path} cannot be read ({error})") from error


def learning_rate(recipe):
    """The learning rate over the steps of a run."""
    rate, schedules = recipe.learning_rate, keras.optimizers.schedules
    if recipe.schedule == "step":
        factor = 0.1 if recipe.decay_factor is None else recipe.decay_factor
        return schedules.ExponentialDecay(rate, recipe.decay_every, factor, staircase=True)
    steps = max(1, recipe.steps - recipe.warmup_steps)
    lowest = 0.0 if recipe.schedule == "cosine" else 1.0  # share of the learning rate
    if not recipe.warmup_steps:
        return schedules.CosineDecay(rate, steps, alpha=lowest)
    warmup = {"warmup_target": rate, "warmup_steps": recipe.warmup_steps}
    return schedules.CosineDecay(0.0, steps, alpha=lowest, **warmup)


def copy_weights(recipe, embedder):
    """Gives the embedder the weights and what is frozen, or the adapters, of `init_from`."""
    path = source_of(recipe.init_from)
    if path.suffix == ".npz":
        load_adapters(embedder, path)
        rank = wrapper_of(embedder).rank
        recipe.check(rank == recipe.lora_rank, f"`lora_rank` must be that of `init_from`, {rank}")
        return
    model = read_model(path)
    source = getattr(model, "embedder", model)
    weights = source.get_weights()
    wanted = [array.shape for array in embedder.get_weights()]
    size = "×".join(map(str, source.input_shape[1:]))
    expectation = (
        "`init_from` must be a run of the same `backbone`, `embedding_dim`, `levels` and channels, "
        "of a small_cnn, a preset with patches or several levels also `image_size`, of several "
        "levels also `pooling` and the same levels without `dropout`, of `tune` lora adapters.npz; "
        f"its images are {size}, and its embeddings have {source.output_shape[-1]} numbers"
    )
    recipe.check([array.shape for array in weights] == wanted, expectation)
    embedder.set_weights(weights)
    if recipe.freeze_batch_norm is None:
        norm = keras.layers.BatchNormalization
        norms = [
            [layer for layer in each._flatten_layers() if isinstance(layer, norm)]
            for each in (embedder, source)
        ]
        for layer, before in zip(*norms, strict=True):
            layer.trainable = before.trainable
