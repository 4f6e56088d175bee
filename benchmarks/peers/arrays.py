"""The arrays that all sides read, each file made once."""

import numpy as np

from tfdml.files import replacing


def written(folder, name, arrays):
    """Name of the file of arrays in a folder, written if it is missing.

    Args:
        folder: `pathlib.Path`.
        name: Name of the file without its ending; it must tell these arrays from others.
        arrays: Function that returns {name: array}.
    """
    path = folder / f"{name}.npz"
    if not path.exists():
        with replacing(path) as unfinished, open(unfinished, "wb") as file:
            np.savez(file, **arrays())
    return path.name


def labels_of(rng, rows, classes):
    """(rows,) labels in random order, two or more of each class."""
    others = rng.integers(0, classes, rows - 2 * classes)
    return rng.permutation(np.concatenate([np.repeat(np.arange(classes), 2), others]))
