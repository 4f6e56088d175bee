"""Exports a trained run again: only shallow levels, smaller files, or with classification.

    python -m tfdml.serving.export runs/cars_hdc --levels 1
    python -m tfdml.serving.export runs/cars_lifted --precision int8
    python -m tfdml.serving.export runs/cars_lifted --classes photos --gallery photos

Writes the next version, such as saved_models/cars_hdc_levels_1/1/, and prints its size and
throughput next to those of the model that the run exported. `evaluate.py --export` does the same
with the images of a dataset and also measures the recall that a smaller precision loses.
"""

import dataclasses
import os
import pathlib
import sys
import time

from tfdml.checks import check
from tfdml.command_line import Parser, check_writable, one_sentence
from tfdml.quiet import import_tensorflow
from tfdml.serving import exported, metadata
from tfdml.serving.options import TOP, ExportOptions, options_kept
from tfdml.serving.versions import megabytes, newest_version, versions_of

PROGRAM = "tfdml.serving.export"
BATCH = 32
SECONDS = 3.0  # duration of each throughput measurement
OF_WRITER = ("tf_serving_warmup_requests", metadata.FILE)  # written for every version


@dataclasses.dataclass(frozen=True)
class Export:
    """Settings of an export.

    Args:
        run: Folder of a complete run, such as runs/NAME; its model is in saved_models/NAME, beside
            `runs`.
        levels: Number of shallowest levels to keep; all if not given. With fewer levels a learned
            similarity is left out.
        precision: Of the stored weights: `float32`; or `float16` or `int8` for a half or a quarter
            of the size. `evaluate.py` measures the recall that is lost.
        on_bad_image: For an unreadable image, `error` fails the request and `nan` gives NaN and
            `valid` false in its row; that of the run's export if not given.
        max_pixels: Pixels of the largest image that is decoded; that of the run's export if not
            given.
        classes: Folder of images, with a sub-folder for each class; adds the signature `classify`,
            which returns the classes with the nearest means.
        gallery: Folder of at most 100,000 images, with a sub-folder for each class; adds the
            signature `neighbours`, which returns the nearest images.
        top: Number of classes or images that they return.
        licence: Of the model, in words or as an SPDX identifier; that of the run's export if not
            given.
        description: What the model is for; that of the run's export if not given.
        out: Folder of the new model, which becomes its next version. If not given,
            saved_models/NAME, with the suffixes `_levels_N` and `_PRECISION` where they apply.
    """

    run: str
    levels: int | None = None
    precision: str = "float32"
    on_bad_image: str | None = None
    max_pixels: int | None = None
    classes: str | None = None
    gallery: str | None = None
    top: int = TOP
    licence: str | None = None
    description: str | None = None
    out: str | None = None

    def __post_init__(self):
        check(self.top > 0, "`top` must be > 0", top=self.top)
        self.options_after({})

    def options_after(self, before):
        """The `ExportOptions`; options not given are taken from {name: value} in `before`."""
        given = {
            field.name: getattr(self, field.name) for field in dataclasses.fields(ExportOptions)
        }
        given = {name: value for name, value in given.items() if value is not None}
        return ExportOptions(**{**options_kept(before), **given})


def main(arguments=None):
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = Parser(Export, prog=PROGRAM, description=(__doc__ or "").partition("\n")[0])
    settings = parser.settings_of(parser.parse_args(arguments))
    with one_sentence(PROGRAM, ValueError, TypeError, OSError):
        run = pathlib.Path(settings.run).resolve()
        trained = shown(newest_version(run.parent.parent / "saved_models" / run.name))
        import_tensorflow()
        options = settings.options_after(metadata.read_metadata(trained))
        out = trained.parent.with_name(run.name + suffix_of(settings.levels, options.precision))
        out = pathlib.Path(settings.out) if settings.out else out
        check_writable(out)
        check_same_run(out, trained)
        from tfdml.serving import folders  # imports TensorFlow

        for folder in filter(None, (settings.classes, settings.gallery)):
            folders.images_of(pathlib.Path(folder))  # raises before the model is read
        served = serve_run(load_run(run), trained, settings.levels, options)
        if settings.classes:
            means = folders.means_of_folder(served, pathlib.Path(settings.classes))
            served.add_classes(means, top=settings.top)
        if settings.gallery:
            gallery = folders.gallery_of_folder(served, pathlib.Path(settings.gallery))
            served.add_gallery(gallery, top=settings.top)
        path = write_next(served, out, trained)
        for version in (path, trained):
            speed = images_per_second(version)
            print(f"{version}: {megabytes(version):.1f} MB, {speed:,.0f} images/s")
        print(f"Score it with: python evaluate.py {path.parent}")


def suffix_of(levels, precision):
    """The suffix that is added to the name of a run to name its model."""
    words = [] if levels is None else [f"levels_{levels}"]
    words += [] if precision == "float32" else [precision]
    return "".join(f"_{word}" for word in words)


def shown(path):
    """The path as given or relative to the working directory, whichever is shorter."""
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
    except Exception as error:  # broken archives raise many types
        raise ValueError(f"{checkpoint} cannot be read ({error})") from error


def serve_run(model, trained, levels=None, options=None):
    """The model of a run, or its shallow levels, ready to be written.

    Args:
        model: The `EmbeddingModel` of the run.
        trained: Path of the version that the run exported; images are read in the same way.
        levels: Number of shallowest levels to keep; all if None.
        options: `ExportOptions`; the defaults if None.

    Returns:
        A `ServedModel`.

    Raises:
        ValueError: If the model has fewer levels, or `trained` has no function `read_image`.
    """
    from tfdml.models import first_levels, number_of_levels
    from tfdml.serving import ServedModel

    whole = levels in (None, number_of_levels(model.embedder))
    embedder = model.embedder if whole else first_levels(model.embedder, levels)
    loss = model.loss if whole else None
    return ServedModel(embedder, reader_of(trained), loss, options=options)


def reader_of(version):
    """The function of a version that reads one image.

    Raises:
        ValueError: If it has no function `read_image`.
    """
    import tensorflow as tf

    loaded = tf.saved_model.load(str(version))
    check(
        hasattr(loaded, "read_image"),
        f"{version} must be one that tfdml exported, with the function read_image",
        signatures=list(loaded.signatures),
    )
    return loaded.read_image


def check_same_run(out, trained):
    """Raises a FileExistsError if a folder holds versions of another run than `trained`."""
    recipe = metadata.without_folders(exported.recipe_of(trained))
    for other in versions_of(out).values():
        if metadata.without_folders(exported.recipe_of(other)) != recipe:
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
        "recipe": exported.recipe_of(trained) or None,
        "trained_classes": exported.trained_classes(trained) or None,
        **known,
    }
    if served.dim == before.get("dimension"):  # scores hold only for all levels
        known["scores"] = before.get("scores")
    assets = {
        file.name: file.read_bytes()
        for file in (trained / "assets.extra").glob("*")
        if file.is_file() and file.name not in OF_WRITER
    }
    path = out / str(max(versions_of(out), default=0) + 1)
    return served.write(path, assets=assets, metadata=known)


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


if __name__ == "__main__":
    main()
