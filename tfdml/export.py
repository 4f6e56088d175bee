"""Exports a trained run again: other runtimes, shallow levels, small files, classification.

    python -m tfdml.export saved_models/cars_lifted --format onnx,litert,openvino
    python -m tfdml.export runs/cars_hdc --levels 1
    python -m tfdml.export runs/cars_matryoshka --dims 64
    python -m tfdml.export runs/cars_lifted --precision int8
    python -m tfdml.export runs/cars_lifted --classes photos --gallery photos

Writes the next version, such as saved_models/cars_hdc_levels_1/1/, and prints its size next to
that of the model that the run exported; of a smaller precision also Recall@1 next to that of
float32, on the images that the run is scored on, of each of its files.
`evaluate.py --export` exports the model that it scores, with the images of its dataset.
"""

import dataclasses
import pathlib
import warnings
from typing import ClassVar

from tfdml import runs, serving
from tfdml.checks import check_integer, check_keras
from tfdml.command_line import Parser, one_sentence
from tfdml.files import check_writable
from tfdml.quiet import import_tensorflow, keep_printing
from tfdml.serving.exported import find_version
from tfdml.serving.metadata import read_metadata
from tfdml.serving.options import OPTIONS, TOP, ExportOptions, options_kept
from tfdml.serving.versions import megabytes

PROGRAM = "tfdml.export"


@dataclasses.dataclass(frozen=True)
class Export:
    """Settings of an export.

    Args:
        run: Folder of a complete run, such as runs/NAME, whose model is in saved_models/NAME beside
            `runs`; or that of its model, or of a version of it.
        levels: Number of shallowest levels to keep; all if not given. With fewer levels a learned
            similarity is left out.
        dims: Numbers of each embedding to keep, the first, of a run with the loss `matryoshka`; all
            if not given.
        precision: Of the stored weights: `float32`; or `float16` or `int8` for kernels of a half or
            a quarter of the size. The rest of a model keeps its size, which counts in small ones.
            That of the exported version if not given.
        format: `saved_model`; or `onnx`, `litert` and `openvino`, one or several joined by commas,
            whose files are written beside the SavedModel; that of the run's export if not given.
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
        score: Score `float16` and `int8` beside the run's weights, on its own images: Recall@1.
        out: Folder of the new model, which becomes its next version. If not given,
            saved_models/NAME, with the suffixes `_levels_N`, `_dims_N` and `_PRECISION` where they
            apply.
    """

    paths: ClassVar = ("run", "classes", "gallery", "out")

    run: str
    levels: int | None = None
    dims: int | None = None
    precision: str | None = None
    format: str | None = None
    on_bad_image: str | None = None
    max_pixels: int | None = None
    classes: str | None = None
    gallery: str | None = None
    top: int = TOP
    licence: str | None = None
    description: str | None = None
    score: bool = True
    out: str | None = None

    def __post_init__(self):
        check_integer(1, top=self.top)
        self.options_after({})

    def options_after(self, before):
        """The `ExportOptions`; options not given are taken from {name: value} in `before`."""
        values = {name: getattr(self, name) for name in OPTIONS}
        given = {name: value for name, value in values.items() if value is not None}
        stored = {"precision": before.get("precision") or "float32"}
        return ExportOptions(**{**stored, **options_kept(before), **given})


def main(arguments=None):
    keep_printing()
    parser = Parser(Export, prog=PROGRAM, description=__doc__)
    settings = parser.settings_of(parser.parse_args(arguments))
    with one_sentence(PROGRAM, ValueError, TypeError, OSError):
        check_keras()
        check_keras("backend")
        run = pathlib.Path(settings.run).resolve()
        trained = find_version(pathlib.Path(settings.run))
        options = settings.options_after(read_metadata(trained))
        import_tensorflow()
        if not (run / "config.yaml").is_file():
            run = runs.run_export.run_of(trained)
        name = trained.resolve().parent.name
        name += suffix_of(settings.levels, settings.dims, settings.precision)
        out = pathlib.Path(settings.out or trained.parent.with_name(name))
        check_writable(out)
        runs.run_export.check_same_run(out, trained)
        path = export_again(settings, options, run, trained, out)
        for name, file in (read_metadata(path).get("files") or {}).items():
            beside = f"within {file['largest_difference']:.0e} of Keras"
            print(f"{path / name}: {file['megabytes']:.1f} MB, {beside}")
        for version in (path, trained):
            print(f"{version}: {megabytes(version):.1f} MB")
        print(f"Score it with: tfdml-evaluate {path.parent}")


def export_again(settings, options, run, trained, out):
    """Writes the next version in a folder; returns its path."""
    nearest = serving.nearest
    for folder in filter(None, (settings.classes, settings.gallery)):
        nearest.images_of(folder)  # raises before the model is read
    kept = {"levels": settings.levels, "dims": settings.dims}
    model = runs.run_export.load_run(run, trained)
    served = runs.run_export.serve_run(model, trained, options=options, **kept)
    known, stored = {}, read_metadata(trained).get("precision") or "float32"
    if settings.score and options.precision not in ("float32", stored):
        known = rounding_scores(served, trained, **kept)
    if settings.classes:
        served.add_classes(nearest.means_of_folder(served, settings.classes), top=settings.top)
    if settings.gallery:
        served.add_gallery(nearest.gallery_of_folder(served, settings.gallery), top=settings.top)
    return runs.run_export.write_next(served, out, trained, **known)


def rounding_scores(served, trained, **kept):
    """`precision_scores` of rounded weights; nothing, with a warning, if they cannot be scored."""
    try:
        return {"precision_scores": runs.score_rounded(served, trained, **kept)}
    except (ValueError, OSError, ImportError) as error:
        loss = f"what {served.options.precision} loses is not scored"
        warnings.warn(f"{loss}: {error}", stacklevel=2)
        return {}


def suffix_of(levels, dims, precision):
    """The suffix that is added to the name of a run to name its model."""
    parts = {"levels": levels, "dims": dims}
    suffix = "".join(f"_{name}_{kept}" for name, kept in parts.items() if kept is not None)
    return suffix if precision in (None, "float32") else f"{suffix}_{precision}"


if __name__ == "__main__":
    main()
