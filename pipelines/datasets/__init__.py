"""Table of the datasets by name; each has a module of this package."""

import importlib
import os
import pathlib

from tfdml.checks import check, unknown_name
from tfdml.files import unpacked

# Names for `--dataset` and `load`, sorted: name -> (module of this package with
# `load(data_dir, ...)`, options of that `load`). What a user writes in place of NAME, a data set of
# TensorFlow Datasets, or PATH, a name or folder of Hugging Face, becomes the option `name`.
DATASETS = {
    "cache": ("cached", {}),
    "cars196": ("cars196", {}),
    "csv": ("csv_file", {}),
    "cub200": ("cub200", {}),
    "digits": ("digits", {}),
    "folder": ("folder", {}),
    "glyphs": ("glyphs", {}),
    "imagenet10k": ("imagenet", {"name": "imagenet10k"}),
    "imagenet2010": ("imagenet", {"name": "imagenet2010"}),
    "in_shop": ("in_shop", {}),
    "omniglot": ("omniglot", {}),
    "parquet": ("tables", {"file_format": "parquet"}),
    "stanford_online_products": ("stanford_online_products", {}),
    "vehicle_id": ("vehicle_id", {"size": 800}),
    "vehicle_id_1600": ("vehicle_id", {"size": 1600}),
    "vehicle_id_2400": ("vehicle_id", {"size": 2400}),
    "vehicle_id_models": ("vehicle_id", {"size": 800, "models": True}),
    "webdataset": ("tables", {"file_format": "webdataset"}),
    "tfds:NAME": ("tfds_images", {}),
    "hf:PATH": ("tables", {"file_format": "parquet"}),
}
READ = ("omniglot", "tfds:NAME")  # whose `load` reads all images, with TensorFlow
BUILT_IN = ("digits", "glyphs")
IN_MEMORY = (*READ, *BUILT_IN)  # whose images are not in separate files
ANNOTATED = "annotated"
WITH_BOXES = ("cars196", "csv", "cub200", "in_shop")  # whose `load` takes `boxes`


def names():
    """Names; `tfds:NAME` is any image set of TensorFlow Datasets, `hf:PATH` of Hugging Face."""
    return [*DATASETS]


def entry_of(name):
    """The entry of `names()` for a name, such as `tfds:NAME` for `tfds:mnist`."""
    prefix, colon, _ = name.partition(":")
    return next((each for each in DATASETS if colon and each.startswith(prefix + colon)), name)


def is_listed(name, data_dir=None, skip_invalid=False):
    """Whether `load` is fast, without TensorFlow: it lists the images, or finds no such folder."""
    missing = data_dir is not None and not os.path.exists(os.path.expanduser(data_dir))
    return entry_of(name) not in READ and (missing or not skip_invalid)


def load(
    name,
    data_dir=None,
    skip_invalid=False,
    training=True,
    boxes=None,
    exclude=None,
    relabel=None,
):
    """Loads a dataset with disjoint training and test classes: a `Dataset`.

    Args:
        name: One of `names()`.
        data_dir: Folder of the images, for those that are not built in; for `csv` also the file,
            for `tfds:NAME` the `data_dir` of TFDS.
        skip_invalid: Whether missing and unreadable images, files that are listed before by another
            path, sub-folders without images, training classes with a single image and other counts
            of images than published are skipped or accepted with a warning; otherwise they are an
            error.
        training: Whether to train on the training classes; if not, they may have a single image.
        boxes: Crops each image to its box: `annotated` for the boxes of the dataset, or a CSV file
            with the lines `path,x1,y1,x2,y2`; `pipelines/boxes.py` has the details.
        exclude, relabel: CSV files of images to leave out and of new labels, such as the task
            `audit` of `evaluate.py` writes; `pipelines/corrections.py` has the details.

    Raises:
        ValueError: If the name is unknown, or the images or boxes are not as expected.
        FileNotFoundError: If the folder, files in it or one of the CSV files are missing.
    """
    entry, (_, colon, given) = entry_of(name), name.partition(":")
    if entry not in DATASETS:
        raise ValueError(unknown_name("dataset", name, names()))
    module, options = DATASETS[entry]
    if colon:
        options = {**options, "name": given}
    built_in = f"dataset {name!r} is built in: leave out `data_dir`"
    check(data_dir is None or name not in BUILT_IN, built_in, data_dir=data_dir)
    annotated = boxes == ANNOTATED
    if annotated:
        expected = f"`boxes` can be `annotated` for {', '.join(WITH_BOXES)}, else a CSV file"
        check(entry in WITH_BOXES, expected, dataset=name)
        options = {**options, "boxes": True}
    elif boxes is not None:
        check(entry not in IN_MEMORY, "`boxes` are for images in files", dataset=name)
        _check_file("`annotated` or an existing CSV file", boxes=boxes)
    files = {"exclude": exclude, "relabel": relabel}
    _check_file("an existing CSV file", **files)
    dataset = _module(module).load(data_dir, skip_invalid, training, **options)
    if boxes is not None and not annotated:
        dataset = importlib.import_module("pipelines.boxes").with_boxes(dataset, boxes, data_dir)
    if exclude is None and relabel is None:
        return dataset
    corrections = importlib.import_module("pipelines.corrections")
    return corrections.corrected(dataset, data_dir, **files)


def _check_file(expected, **files):
    for name, path in files.items():
        if path is not None and not pathlib.Path(path).is_file():
            raise FileNotFoundError(f"`{name}` must be {expected}. Received: {name}={str(path)!r}")


def _module(name):
    return importlib.import_module(f"{__name__}.{name}")


def place_of(name, data_dir):
    """The path of what `load` reads: the CSV file in a folder, the folder of an archive in another.

    That of `data_dir` where `load` reads it itself, or would find nothing.
    """
    path, inner = unpacked(pathlib.Path(os.path.expanduser(data_dir))), []
    if name == "csv" and path.is_dir():
        inner = _module("csv_file").tables_in(path)
    elif name in DATASETS and hasattr(module := _module(DATASETS[name][0]), "ARCHIVE"):
        inner = [path / module.ARCHIVE.folder]
    return inner[0] if len(inner) == 1 and inner[0].exists() else path


def given_path(name, data_dir, what):
    """The path of a user's images; an error says what they are if it is None or not there."""
    check(data_dir is not None, f"dataset {name!r} needs `data_dir`, {what}", data_dir=data_dir)
    path = unpacked(pathlib.Path(os.path.expanduser(data_dir)))
    if not path.exists():
        raise FileNotFoundError(f"`data_dir` must be {what}; there is no {path}")
    return path
