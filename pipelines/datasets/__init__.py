"""Datasets by name: one file each, one line each in the table."""

import difflib
import importlib

# What `--dataset` and `load` take: name -> module of this package with `load(data_dir, ...)`.
DATASETS = {
    "digits": "digits",
    "folder": "folder",
    "glyphs": "glyphs",
    "omniglot": "omniglot",
}


def names():
    """Names of the datasets."""
    return sorted(DATASETS)


def load(name, data_dir=None, skip_invalid=False, training=True, boxes=None):
    """Loads a dataset whose test classes are not among its training classes.

    Args:
        name: One of `names()`.
        data_dir: Folder of the images, for those that are not built in.
        skip_invalid: Whether unreadable images, sub-folders without images and training classes
            with a single image are left out with a warning; otherwise they are an error.
        training: Whether the training classes are to be trained on; if not, they may have 1 image.
        boxes: CSV file with the lines `path,x1,y1,x2,y2`, of which the part of each image inside of
            its box is taken; `pipelines/boxes.py` has the details.

    Returns:
        A `Dataset`.

    Raises:
        ValueError: If the name is unknown, or the images or boxes are not as expected.
        FileNotFoundError: If the folder or files in it are missing.
    """
    if name not in DATASETS:
        nearest = difflib.get_close_matches(name, DATASETS, n=1)
        hint = f"Did you mean {nearest[0]!r}? " if nearest else ""
        raise ValueError(f"Unknown dataset {name!r}. {hint}Available: {', '.join(names())}.")
    module = importlib.import_module(f"{__name__}.{DATASETS[name]}")
    dataset = module.load(data_dir=data_dir, skip_invalid=skip_invalid, training=training)
    if boxes is None:
        return dataset
    from pipelines.boxes import with_boxes

    return with_boxes(dataset, boxes, data_dir)


def refuse_folder(name, data_dir):
    """Raises a ValueError if a folder is given to a dataset that is built in."""
    if data_dir is not None:
        raise ValueError(f"dataset {name!r} is built in. Received: data_dir={data_dir!r}")
