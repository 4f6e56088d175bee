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
