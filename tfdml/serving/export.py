"""Exports a trained run again, whole or its shallow levels alone.

    python -m tfdml.serving.export runs/cars_hdc --levels 1

Writes saved_models/cars_hdc_levels_1/1/, with nothing of the deeper levels in it, and says how
many images a second it embeds, beside the whole model.
"""

import dataclasses
import os
import pathlib
import sys
import time

from tfdml.checks import check
from tfdml.command_line import Parser, check_writable, one_sentence
from tfdml.serving.exported import MEAN_IMAGE, RECIPE, TRAINED_CLASSES
from tfdml.serving.versions import megabytes, newest_version, versions_of

PROGRAM = "tfdml.serving.export"
ASSETS = (RECIPE, TRAINED_CLASSES, MEAN_IMAGE)
BATCH = 32
SECONDS = 3.0  # of each throughput that is measured


@dataclasses.dataclass(frozen=True)
class Export:
    """What to export, and where to.

    Args:
        run: Folder of a run that is complete, such as runs/NAME; its model is in saved_models/NAME,
            beside `runs`.
        levels: Shallowest levels to keep, of a model with several; all if not given. Without all
            of them a similarity that was learned is left out.
        out: Folder of the new model, in which it becomes the next version; saved_models/NAME, or
            saved_models/NAME_levels_N, if not given.
    """

    run: str
    levels: int | None = None
    out: str | None = None


def main(arguments=None):
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = Parser(Export, prog=PROGRAM, description=(__doc__ or "").partition("\n")[0])
    settings = parser.settings_of(parser.parse_args(arguments))
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with one_sentence(PROGRAM, ValueError, TypeError, OSError):
        run = pathlib.Path(settings.run).resolve()
        trained = shown(newest_version(run.parents[1] / "saved_models" / run.name))
        out = pathlib.Path(settings.out) if settings.out else trained.parent
        if settings.levels is not None and not settings.out:
            out = out.with_name(f"{run.name}_levels_{settings.levels}")
        check_writable(out)
        path = export_run(load_run(run), trained, out, settings.levels)
        for version in (path, trained):
            speed = images_per_second(version)
            print(f"{version}: {megabytes(version):.1f} MB, {speed:,.0f} images/s")
        print(f"Score it with: python evaluate.py {path.parent}")


def shown(path):
    """The path from here, where that is shorter."""
    return min(path, pathlib.Path(os.path.relpath(path)), key=lambda shape: len(str(shape)))


def load_run(run):
    """The model of a run, at its last checkpoint.

    Args:
        run: Path of the run's folder.

    Raises:
        FileNotFoundError: If there is no checkpoint.
        ValueError: If it cannot be read.
    """
    import keras

    import tfdml

    checkpoint = run / "checkpoint.keras"
    if not checkpoint.is_file():
        raise FileNotFoundError(f"there is no {checkpoint}")
    tfdml.register()
    try:
        return keras.models.load_model(checkpoint)
    except Exception as error:  # what a broken archive raises has no common class
        raise ValueError(f"{checkpoint} cannot be read ({error})") from error


def export_run(model, trained, out, levels=None):
    """Writes the next version of a folder from the model of a run.

    Args:
        model: The `EmbeddingModel` of the run.
        trained: Path of the version that the run exported, whose images are read alike.
        out: Folder of the versions.
        levels: Shallowest levels to keep; all if None.

    Returns:
        The path of the version.

    Raises:
        FileExistsError: If `out` holds versions of another run.
        ValueError: If the model has not so many levels, or `trained` has no signature
            `read_images`.
    """
    import tensorflow as tf

    from tfdml.models import first_levels, number_of_levels
    from tfdml.serving import export_model

    whole = levels in (None, number_of_levels(model.embedder))
    embedder = model.embedder if whole else first_levels(model.embedder, levels)
    signatures = tf.saved_model.load(str(trained)).signatures
    check(
        "read_images" in signatures,
        f"{trained} must have the signature read_images",
        signatures=list(signatures),
    )
    assets = {
        name: (trained / "assets.extra" / name).read_bytes()
        for name in ASSETS
        if (trained / "assets.extra" / name).is_file()
    }
    others = versions_of(out)
    for other in others.values():
        recipe = other / "assets.extra" / RECIPE
        if not recipe.is_file() or recipe.read_bytes() != assets.get(RECIPE):
            raise FileExistsError(f"{other} is of another run: choose another folder for this one")
    return export_model(
        embedder,
        out / str(max(others, default=0) + 1),
        read_image=lambda content: signatures["read_images"](content[None])["images"][0],
        loss=model.loss if whole else None,
        assets=assets,
    )


def images_per_second(version):
    """Images that `embed_images` of a SavedModel takes in a second, in batches of 32."""
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


if __name__ == "__main__":
    main()
