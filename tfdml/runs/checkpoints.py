"""Models that runs saved, to go on with or to start another from."""

import pathlib
import zipfile

from tfdml.checks import check
from tfdml.files import read_settings
from tfdml.runs.folders import EARLIER, RUNS, SAVED_MODELS, TRAINED, read_classes
from tfdml.runs.learning_rate import learning_rate
from tfdml.serving.exported import recipe_of
from tfdml.serving.versions import versions_of


def check_incomplete(recipe):
    """Raises a FileExistsError if the run has exported a version at its last step."""
    versions = versions_of(SAVED_MODELS / recipe.run)
    if versions:
        newest = versions[max(versions)]
        if recipe_of(newest).get("steps", recipe.steps) >= recipe.steps:
            raise FileExistsError(
                f"run {recipe.run!r} is complete: {newest}. To train it further, give more "
                f"--steps than {recipe.steps}"
            )


def load_checkpoint(recipe, folder):
    """The model at the last checkpoint of a run that stopped; None before the first."""
    path = folder / "checkpoint.keras"
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
    import keras

    import tfdml

    tfdml.register()
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        check(damaged is None, "its files must have their checksums", damaged=damaged)
        return keras.models.load_model(path)
    except Exception as error:  # what a broken archive raises has no common class
        raise ValueError(f"{path} cannot be read ({error})") from error


def source_of(run):
    """The checkpoint of a run, given by its name, its folder or the file itself."""
    for path in (RUNS / run / "checkpoint.keras", pathlib.Path(run) / "checkpoint.keras", run):
        if zipfile.is_zipfile(path):
            return path
    expectation = "`init_from` must be a run with a checkpoint, or a .keras file"
    raise FileNotFoundError(f"{expectation}. Received: init_from={run!r}")


def check_start(recipe):
    """Checks that there is a run of `init_from`, with the network of the recipe."""
    settings = _settings_of(pathlib.Path(source_of(recipe.init_from)).parent)
    for name in ("backbone", "embedding_dim"):
        value = settings.get(name, getattr(recipe, name))
        expectation = f"`{name}` must be that of the run to start from, {value!r}"
        recipe.check(value == getattr(recipe, name), expectation, "init_from")


def classes_before(recipe):
    """Names of the classes of its dataset that the run of `init_from` was trained on."""
    if not recipe.init_from:
        return []
    folder = pathlib.Path(source_of(recipe.init_from)).parent
    same = _settings_of(folder).get("dataset") == recipe.dataset
    return [*read_classes(folder, TRAINED), *read_classes(folder, EARLIER)] if same else []


def _settings_of(folder):
    """The settings of a run; {} for the folder of another file."""
    config = folder / "config.yaml"
    return read_settings(config) if config.is_file() else {}


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
        for layer, before in zip(_batch_norms(embedder), _batch_norms(source), strict=True):
            layer.trainable = before.trainable


def _batch_norms(network):
    import keras

    layers = network._flatten_layers()
    return [layer for layer in layers if isinstance(layer, keras.layers.BatchNormalization)]
