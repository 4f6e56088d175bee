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

PROGRAM = "tfdml.serving.export"
ASSETS = ("recipe.yaml", "trained_classes.json")
BATCH = 32
SECONDS = 3.0  # of each throughput that is measured


@dataclasses.dataclass(frozen=True)
class Export:
    """What to export, and where to.

    Args:
        run: Folder of a run that is complete, such as runs/NAME; its model is in saved_models/NAME,
            beside `runs`.
        levels: Shallowest levels to keep, of a model with several; all if not given.
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
        run = pathlib.Path(settings.run)
        trained = newest_version(run.parent.parent / "saved_models" / run.name)
        out = pathlib.Path(settings.out) if settings.out else trained.parent
        if settings.levels is not None and not settings.out:
            out = out.with_name(f"{run.name}_levels_{settings.levels}")
        check_writable(out)
        path = export_run(run / "checkpoint.keras", trained, out, settings.levels)
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        print(
            f"{path}: {size / 1e6:.1f} MB, {images_per_second(path):,.0f} images/s; "
            f"{trained}: {images_per_second(trained):,.0f} images/s"
        )
        print(f"Score it with: python evaluate.py {path.parent}")


def newest_version(folder):
    """The SavedModel of the highest version in a folder.

    Raises:
        FileNotFoundError: If it holds none.
    """
    versions = [path for path in folder.glob("[0-9]*") if path.name.isdigit()]
    if not versions:
        raise FileNotFoundError(f"no SavedModel in {folder}: the run has to be complete")
    return max(versions, key=lambda path: int(path.name))


def export_run(checkpoint, trained, out, levels=None):
    """Writes the next version of a folder from a checkpoint.

    Args:
        checkpoint: Path of the `checkpoint.keras` of a run.
        trained: Path of the version that the run exported, whose images are read alike.
        out: Folder of the versions.
        levels: Shallowest levels to keep; all if None.

    Returns:
        The path of the version.

    Raises:
        FileNotFoundError: If there is no checkpoint.
        ValueError: If it cannot be read, the model has not so many levels, or `trained` has no
            signature `read_images`.
    """
    import keras
    import tensorflow as tf

    import tfdml
    from tfdml.models import first_levels
    from tfdml.serving import export_model

    if not checkpoint.is_file():
        raise FileNotFoundError(f"there is no {checkpoint}")
    tfdml.register()
    try:
        model = keras.models.load_model(checkpoint)
    except Exception as error:  # what a broken archive raises has no common class
        raise ValueError(f"{checkpoint} cannot be read ({error})") from error
    embedder = model.embedder if levels is None else first_levels(model.embedder, levels)
    signatures = tf.saved_model.load(str(trained)).signatures
    check(
        "read_images" in signatures,
        f"{trained} must have the signature read_images",
        signatures=list(signatures),
    )
    assets = {
        name: (trained / "assets.extra" / name).read_text()
        for name in ASSETS
        if (trained / "assets.extra" / name).is_file()
    }
    taken = [int(path.name) for path in out.glob("[0-9]*") if path.name.isdigit()]
    return export_model(
        embedder,
        out / str(max(taken, default=0) + 1),
        read_image=lambda content: signatures["read_images"](content[None])["images"][0],
        loss=model.loss if levels is None else None,
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
