import collections
import pathlib
import warnings

import numpy as np

from pipelines.augmentation import Augmentation
from pipelines.datasets.listing import broken_images, first_five, refuse_or_warn
from pipelines.split import Dataset, Split
from tfdml.image_files import SUFFIXES, class_folders, is_image


def load(data_dir=None, skip_invalid=False, training=True):
    """A folder of images with one sub-folder per class.

    The first half of the classes in sorted order (rounded down) is for training, the rest for
    testing. Hidden files are ignored; files without a suffix of `SUFFIXES` and folders inside a
    class folder are ignored with a warning. Images are listed and only read with `skip_invalid`.

    Args:
        data_dir: The folder.
        skip_invalid: Whether unreadable images, sub-folders without images and training classes
            with fewer than 2 images are skipped with a warning; otherwise they are an error.
        training: Whether to train on the training classes; if not, they may have a single image.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If it has fewer than two classes, or images that cannot be used.
    """
    classes = _find_classes(data_dir)
    refuse_or_warn(
        "sub-folders without images",
        [name for name, class_paths in classes.items() if not class_paths],
        skip_invalid,
    )
    classes = {name: class_paths for name, class_paths in classes.items() if class_paths}
    paths = [path for class_paths in classes.values() for path in class_paths]
    broken = {paths[row]: reason for row, reason in broken_images(paths, skip_invalid).items()}
    refuse_or_warn(
        "images that cannot be read",
        [f"{path} ({reason})" for path, reason in sorted(broken.items())],
        skip_invalid,
    )
    classes = {
        name: [path for path in class_paths if path not in broken]
        for name, class_paths in classes.items()
    }
    class_names = dict(enumerate(sorted(classes)))
    half = len(class_names) // 2
    single = [i for i in range(half) if training and len(classes[class_names[i]]) < 2]
    refuse_or_warn(
        "training classes with fewer than 2 images, which have no positive pair",
        [class_names[i] for i in single],
        skip_invalid,
    )
    train = [i for i in range(half) if i not in single]
    splits = [_split(classes, class_names, ids) for ids in (train, range(half, len(class_names)))]
    return Dataset(
        "folder",
        *splits,
        image_size=(112, 112, 3),
        augmentation=Augmentation(crop=0.5, aspect=4 / 3, flip=True),
    )


def _find_classes(data_dir):
    """{name of a sub-folder: paths of its images}."""
    if data_dir is None:
        raise ValueError(
            "dataset 'folder' needs `data_dir`, a folder with one sub-folder of images per class. "
            "Received: data_dir=None"
        )
    folder = pathlib.Path(data_dir).expanduser()
    if not folder.exists():
        raise FileNotFoundError(
            f"`data_dir` must be a folder with one sub-folder per class; there is no {folder}"
        )
    if not folder.is_dir():
        raise ValueError(
            f"`data_dir` must be a folder with one sub-folder per class; {folder} is a file"
        )
    classes, others, inner = {}, collections.Counter(), []
    for name, paths in class_folders(folder).items():
        classes[name] = list(filter(is_image, paths))
        ignored = [path for path in paths if not is_image(path)]
        others.update(path.suffix.lower() or "no suffix" for path in ignored if path.is_file())
        inner += [f"{name}/{path.name}" for path in ignored if _holds_files(path)]
    if others:
        listed = ", ".join(f"{count} {suffix}" for suffix, count in sorted(others.items()))
        warnings.warn(
            f"ignored files that do not end in {', '.join(SUFFIXES)}: {listed}", stacklevel=4
        )
    if inner:
        warnings.warn(
            f"ignored {len(inner)} folders inside those of the classes: {first_five(inner)}",
            stacklevel=4,
        )
    with_images = sum(map(bool, classes.values()))
    if with_images < 2:
        raise ValueError(
            f"{folder} must have 2 or more sub-folders with images ({', '.join(SUFFIXES)}), one "
            "per class: one class to train and one to test. "
            f"Found: sub-folders={len(classes)}, with images={with_images}"
        )
    return classes


def _holds_files(path):
    return any(
        inner.is_file() and not inner.name.startswith(".")
        for inner in (path.rglob("*") if path.is_dir() else ())
    )


def _split(classes, class_names, ids):
    paths = [str(path) for i in ids for path in classes[class_names[i]]]
    labels = [i for i in ids for _ in classes[class_names[i]]]
    if not labels:
        raise ValueError(
            "at least one class with images must remain for training, and one for testing"
        )
    return Split(np.array(paths), np.array(labels), class_names)
