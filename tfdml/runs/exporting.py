"""Exports a trained run again, as its next version."""

import time

from tfdml.checks import check
from tfdml.runs.checkpoints import read_model
from tfdml.serving import exported, metadata
from tfdml.serving.versions import next_version, versions_of

BATCH = 32
SECONDS = 3.0  # duration of each throughput measurement
OF_WRITER = ("tf_serving_warmup_requests", metadata.FILE)  # written for every version


def load_run(run, trained):
    """The model of a run, at its last checkpoint.

    Args:
        run: Path of the run's folder.
        trained: Path of the version that the run exported at that checkpoint.

    Raises:
        FileNotFoundError: If there is no checkpoint.
        ValueError: If it cannot be read, or the run was trained further than the version.
    """
    checkpoint = run / "checkpoint.keras"
    if not checkpoint.is_file():
        raise FileNotFoundError(f"there is no {checkpoint}")
    model = read_model(checkpoint)
    steps, of_version = int(model.optimizer.iterations), exported.recipe_of(trained).get("steps")
    expectation = (
        f"{checkpoint} was trained further than {trained}: end the run by --resume, or give its "
        "last version"
    )
    # Steps whose gradients overflow in float16 do not count.
    check(of_version is None or steps <= of_version, expectation, steps=steps, version=of_version)
    return model


def serve_run(model, trained, levels=None, options=None, dims=None):
    """The model of a run, or its shallow levels or first dimensions, ready to be written.

    Args:
        model: The `EmbeddingModel` of the run.
        trained: Path of the version that the run exported; images are read in the same way.
        levels: Number of shallowest levels to keep; all if None.
        options: `ExportOptions`; the defaults if None.
        dims: First dimensions of each embedding to keep, of a model of one level; all if None.

    Returns:
        A `ServedModel`.

    Raises:
        ValueError: If the model has fewer levels or dimensions, or `trained` has no function
            `read_image`.
    """
    import tensorflow as tf

    from tfdml.models import first_dims, first_levels, number_of_levels
    from tfdml.models.precision import in_float32
    from tfdml.serving import ServedModel

    embedder = in_float32(model.embedder)
    if levels not in (None, number_of_levels(embedder)):
        embedder = first_levels(embedder, levels)
    if dims not in (None, embedder.output_shape[-1]):
        embedder = first_dims(embedder, dims)
    whole = embedder.output_shape == model.embedder.output_shape
    reader = tf.saved_model.load(str(trained))
    expected = f"{trained} must be one that tfdml exported, with the function read_image"
    check(hasattr(reader, "read_image"), expected, signatures=list(reader.signatures))
    return ServedModel(embedder, reader.read_image, model.loss if whole else None, options=options)


def check_same_run(out, trained):
    """Raises a FileExistsError if a folder holds versions of another run than `trained`.

    A run that was trained further is the same; one on another folder of the same name is not, if
    the versions or their runs tell the folders.
    """

    def run_of(version):
        about = metadata.read_metadata(version)
        recipe = exported.recipe_in(about)
        config = exported.config_of(version, recipe)
        recipe = {**metadata.without_folders(recipe), "steps": None}
        return recipe, about.get("places") or (config and metadata.places_of(config))

    run, places = run_of(trained)
    for other in versions_of(out).values():
        of_other, others = run_of(other)
        if of_other != run or (places and others and places != others):
            raise FileExistsError(f"{other} is of another run: choose another folder for this one")


def write_next(served, out, trained, **known):
    """Writes the next version of a folder, with the metadata of its training.

    Args:
        served: `ServedModel` of the run that exported `trained`.
        out: Folder of the versions.
        trained: Path of the version that the run exported; its assets are copied.
        **known: Further arguments of `metadata_of`.

    Returns:
        The path of the version.

    Raises:
        FileExistsError: If `out` holds versions of another run.
    """
    check_same_run(out, trained)
    before = metadata.read_metadata(trained)
    known = {
        "recipe": exported.recipe_in(before) or None,
        "places": before.get("places"),
        "trained_classes": before.get("trained_classes") or None,
        **known,
    }
    if served.dim == before.get("dimension"):  # scores hold only for all levels
        known["scores"] = before.get("scores")
    files = [file for file in (trained / "assets.extra").glob("*") if file.is_file()]
    assets = {file.name: file.read_bytes() for file in files if file.name not in OF_WRITER}
    return served.write(next_version(out), assets=assets, metadata=known)


def images_per_second(version):
    """Throughput of `embed_images` of a SavedModel, in images/s, in batches of 32."""
    import numpy as np
    import tensorflow as tf

    embed = tf.saved_model.load(str(version)).signatures["embed_images"]
    shape = embed.structured_input_signature[1]["images"].shape[1:]
    images = tf.constant(np.random.default_rng(0).uniform(0, 255, (BATCH, *shape)), tf.float32)
    embed(images=images)  # the first call prepares the graph
    batches, began = 0, time.perf_counter()
    while time.perf_counter() - began < SECONDS:
        embed(images=images)["embedding"].numpy()
        batches += 1
    return batches * BATCH / (time.perf_counter() - began)
