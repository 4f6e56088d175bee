"""Models that runs saved, to go on with or to start another from."""

import zipfile

import keras

import tfdml
from tfdml.checks import check
from tfdml.runs.folders import CHECKPOINT, source_of

_BATCH_NORM = keras.layers.BatchNormalization


def load_checkpoint(recipe, folder):
    """The model at the last checkpoint of a run that stopped; None before the first."""
    path = folder / CHECKPOINT
    if not path.is_file():
        return None
    try:
        model = read_model(path)
    except ValueError as error:
        if zipfile.is_zipfile(path):  # it may be intact
            raise
        raise ValueError(f"{error}. Delete {folder} and start over") from error
    if model.micro_batch is None:
        model.jit_compile = None  # to be chosen for the devices of today
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
    """Gives the embedder the weights of the run that `init_from` names.

    Batch normalisation is frozen where it was in that run, unless the recipe says otherwise.
    """
    model = read_model(source_of(recipe.init_from))
    source = getattr(model, "embedder", model)
    weights = source.get_weights()
    wanted = [array.shape for array in embedder.get_weights()]
    size = "×".join(map(str, source.input_shape[1:]))
    expectation = (
        "`init_from` must be a run of the same `backbone`, `embedding_dim`, `levels` and channels, "
        "of a small_cnn or several levels also `image_size`, of several levels also `pooling` and "
        "the same levels without `dropout`; "
        f"its images are {size}, and its embeddings have {source.output_shape[-1]} numbers"
    )
    recipe.check([array.shape for array in weights] == wanted, expectation)
    embedder.set_weights(weights)
    if recipe.freeze_batch_norm is None:
        norms = [
            [layer for layer in each._flatten_layers() if isinstance(layer, _BATCH_NORM)]
            for each in (embedder, source)
        ]
        for layer, before in zip(*norms, strict=True):
            layer.trainable = before.trainable
